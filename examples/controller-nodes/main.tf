# Three controllers that are nodes, and two workers. Pods that tolerate the controllers' taint run there,
# such as pods of a cloud controller manager or of a webhook.

provider "k8s" {}

module "cluster" {
  source           = "../modules/cluster"
  providers        = { k8s = k8s, k8s.direct = k8s }
  cluster          = "demo"
  admin_cidrs      = var.admin_cidrs
  controller_nodes = true
  elsewhere        = var.elsewhere
}

output "endpoint" {
  value = module.cluster.endpoint
}

output "pod_cidrs" {
  value = module.cluster.pod_cidrs
}
