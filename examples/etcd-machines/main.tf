# etcd on three machines of its own: neither the API servers nor their restarts take processor time, memory
# or disk throughput from it.

provider "k8s" {}

module "cluster" {
  source        = "../modules/cluster"
  providers     = { k8s = k8s, k8s.direct = k8s }
  cluster       = "demo"
  admin_cidrs   = var.admin_cidrs
  etcd_machines = 3
  elsewhere     = var.elsewhere
}

output "endpoint" {
  value = module.cluster.endpoint
}

output "etcd_endpoints" {
  value = module.cluster.etcd_endpoints
}
