variable "control_plane" {
  type        = any
  description = "ref of the k8s_control_plane"
}

variable "controllers" {
  type        = list(any)
  description = "host of each controller's k8s_machine"
}

resource "k8s_pki" "this" {
  cluster = "demo"
}

data "k8s_cluster_status" "this" {
  pki           = k8s_pki.this.ref
  control_plane = var.control_plane
  controllers   = var.controllers
}

output "healthy" {
  value = data.k8s_cluster_status.this.healthy
}
