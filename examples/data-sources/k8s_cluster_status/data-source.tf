data "k8s_cluster_status" "this" {
  control_plane = k8s_control_plane.this.ref
  controllers   = k8s_machine.controller[*].host
}

output "healthy" {
  value = data.k8s_cluster_status.this.healthy
}
