resource "k8s_control_plane" "example" {
  version    = "1.36.4"
  hosts      = k8s_machine.controller[*].host
  pki        = k8s_pki.this.ref
  etcd       = k8s_etcd_cluster.this.ref
  lb         = k8s_lb.this.ref
  node_cidrs = k8s_network.this.node_cidrs

  extra_sans = ["api.demo.example.com"]

  controller_manager_args = {
    terminated-pod-gc-threshold = "100"
  }
}
