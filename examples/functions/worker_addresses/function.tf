variable "workers" {
  type    = list(string)
  default = ["red-0", null, "blue-0"] # red-1 is gone, and blue-0 keeps its address
}

locals {
  workers = provider::k8s::worker_addresses(["10.240.0.0/24"], "10.200.0.0/16", var.workers)
}

resource "k8s_network" "this" {
  cluster     = "demo"
  admin_cidrs = ["198.51.100.7/32"]
  node_cidr   = "10.240.0.0/24"
}

resource "k8s_machine" "worker" {
  for_each   = local.workers
  name       = each.key
  role       = "worker"
  network    = k8s_network.this.ref
  private_ip = each.value.private_ip # 10.240.0.20 and 10.240.0.22
  pod_cidr   = each.value.pod_cidr   # 10.200.0.0/24 and 10.200.2.0/24
}
