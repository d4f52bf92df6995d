# Two clusters from one configuration: one on EC2, and one on machines that exist already.

provider "k8s" {
  region  = var.region
  profile = var.profile
}

# It has neither a region nor credentials: nothing of its cluster is in AWS. Other machines, another SSH key.
provider "k8s" {
  alias = "basement"
  ssh = {
    private_key_file = var.basement_ssh_key_file
  }
}

module "cloud" {
  source      = "../modules/cluster"
  providers   = { k8s = k8s, k8s.direct = k8s }
  cluster     = "cloud"
  admin_cidrs = var.admin_cidrs
  controllers = 1
  workers     = 1
  pod_cidr    = "10.201.0.0/16" # the other cluster has 10.200.0.0/16
  elsewhere   = var.elsewhere
}

module "basement" {
  source      = "../own-machines"
  providers   = { k8s = k8s.basement }
  cluster     = "basement"
  network     = var.basement_network
  controllers = var.basement_controllers
  workers     = var.basement_workers
  elsewhere   = var.elsewhere
}

resource "k8s_kubeconfig" "cloud" {
  control_plane = module.cloud.control_plane
}

output "endpoints" {
  value = { cloud = module.cloud.endpoint, basement = module.basement.endpoint }
}

output "cloud_kubeconfig" {
  value     = k8s_kubeconfig.cloud.kubeconfig_raw
  sensitive = true
}

output "basement_kubeconfig" {
  value     = module.basement.kubeconfig
  sensitive = true
}
