data "k8s_cluster_status" "this" {
  pki           = k8s_pki.this.ref
  control_plane = k8s_control_plane.this.ref
  controllers   = k8s_machine.controller[*].host
  workers       = k8s_machine.worker[*].host
}

output "status" {
  value = data.k8s_cluster_status.this
}
