# One controller, and two workers that are Spot instances: they cost less, and EC2 may end each with a notice
# of two minutes. Use three controllers for more than a trial.

provider "k8s" {}

module "cluster" {
  source       = "../modules/cluster"
  providers    = { k8s = k8s, k8s.direct = k8s }
  cluster      = "demo"
  admin_cidrs  = var.admin_cidrs
  controllers  = 1
  spot         = {}
  node_profile = var.node_profile
  elsewhere    = var.elsewhere
}

output "endpoint" {
  value = module.cluster.endpoint
}

output "private_ips" {
  value = module.cluster.private_ips
}
