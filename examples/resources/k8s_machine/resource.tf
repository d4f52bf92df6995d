resource "k8s_network" "this" {
  name        = "demo"
  admin_cidrs = ["198.51.100.7/32"]
}

resource "k8s_machine" "worker" {
  count         = 2
  name          = "worker-${count.index}"
  role          = "worker"
  network       = k8s_network.this.ref
  private_ip    = cidrhost(k8s_network.this.node_cidr, 20 + count.index)
  pod_cidr      = cidrsubnet("10.200.0.0/16", 8, count.index)
  instance_type = "t3.medium"
}
