# A cluster in private subnets without a bastion. No machine has a public address: SSH goes through an EC2
# Instance Connect Endpoint, and the Kubernetes API is reached over SSH to a machine of the cluster. Its
# machines reach the internet through a NAT gateway.

provider "k8s" {
  ssh = {
    instance_connect = {}
  }
}

module "cluster" {
  source           = "../modules/cluster"
  providers        = { k8s = k8s, k8s.direct = k8s }
  cluster          = "demo"
  admin_cidrs      = var.admin_cidrs
  private          = true
  instance_connect = true
  elsewhere        = var.elsewhere
}

output "endpoint" {
  value = module.cluster.endpoint
}

output "relay" {
  value = module.cluster.relay
}

output "private_ips" {
  value = module.cluster.private_ips
}
