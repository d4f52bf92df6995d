# A cluster in private subnets. Only its bastion has a public address; SSH and the Kubernetes API are
# reached through it. Its machines reach the internet through a NAT gateway.

provider "k8s" {
  alias = "direct"
}

provider "k8s" {
  ssh = {
    bastion = module.cluster.bastion
  }
}

module "cluster" {
  source      = "../modules/cluster"
  providers   = { k8s = k8s, k8s.direct = k8s.direct }
  cluster     = "demo"
  admin_cidrs = var.admin_cidrs
  private     = true
  elsewhere   = var.elsewhere
}

output "endpoint" {
  value = module.cluster.endpoint
}

output "bastion" {
  value = module.cluster.bastion
}

output "private_ips" {
  value = module.cluster.private_ips
}
