# Three controllers in three availability zones behind Network Load Balancers of AWS: no single machine
# carries the endpoint.

provider "k8s" {}

module "cluster" {
  source          = "../modules/cluster"
  providers       = { k8s = k8s, k8s.direct = k8s }
  cluster         = "demo"
  admin_cidrs     = var.admin_cidrs
  zone_count      = 3
  endpoint        = var.endpoint
  endpoint_before = var.endpoint_before
  elsewhere       = var.elsewhere
}

output "endpoint" {
  value = module.cluster.endpoint
}

output "private_ips" {
  value = module.cluster.private_ips
}
