# Three controllers and three workers in three availability zones.

provider "k8s" {}

module "cluster" {
  source      = "../modules/cluster"
  cluster     = "demo"
  admin_cidrs = var.admin_cidrs
  zone_count  = 3
  workers     = 3
  elsewhere   = local.elsewhere
}

output "endpoint" {
  value = module.cluster.endpoint
}
