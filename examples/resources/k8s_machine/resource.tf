resource "k8s_machine" "example" {
  count            = 2
  name             = "example-${count.index}"
  role             = "worker"
  network          = k8s_network.this.ref
  private_ip       = cidrhost(k8s_network.this.node_cidr, 40 + count.index)
  pod_cidr         = cidrsubnet("10.200.0.0/16", 8, 20 + count.index)
  instance_type    = "m7i.large"
  root_volume_size = 100
  instance_profile = "k8s-worker"
  stage            = { kubernetes_version = var.kubernetes_version }
}
