# One controller and two workers whose network is Cilium. The machines get neither the bridge network nor
# kube-proxy: Cilium, which values.yaml configures, takes the place of both. The guide "Cilium" says how to
# install it. Use three controllers for more than a trial.

provider "k8s" {}

module "cluster" {
  source           = "../modules/cluster"
  providers        = { k8s = k8s, k8s.direct = k8s }
  cluster          = "demo"
  admin_cidrs      = var.admin_cidrs
  controllers      = 1
  controller_nodes = var.controller_nodes
  cni              = var.cni
  kube_proxy       = var.kube_proxy
  elsewhere        = var.elsewhere
}

# What `helm template` has made of the chart and values.yaml. CoreDNS, in the module, is available once nodes have
# this network, so both are applied at the same time.
resource "k8s_addon" "cilium" {
  for_each      = fileset(path.module, "cilium.yaml")
  name          = "cilium"
  control_plane = module.cluster.control_plane
  manifests     = [file("${path.module}/${each.key}")]
  wait          = var.cni == "none"
}

output "endpoint" {
  value = module.cluster.endpoint
}

output "private_ips" {
  value = module.cluster.private_ips
}
