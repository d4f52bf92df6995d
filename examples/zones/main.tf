# Three controllers and three workers in three availability zones.

provider "k8s" {}

module "cluster" {
  source      = "../modules/cluster"
  providers   = { k8s = k8s, k8s.direct = k8s }
  cluster     = "demo"
  admin_cidrs = var.admin_cidrs
  zone_count  = 3
  workers     = 3
  elsewhere   = var.elsewhere
}

output "endpoint" {
  value = module.cluster.endpoint
}

output "private_ips" {
  value = module.cluster.private_ips
}
