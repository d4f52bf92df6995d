# Built in.
resource "k8s_addon" "metrics_server" {
  name          = "metrics-server"
  pki           = k8s_pki.this.ref
  control_plane = k8s_control_plane.this.ref

  # Its pods need nodes: without this, the addon could be applied before there are any.
  depends_on = [k8s_worker_pool.this]
}

# Your own.
resource "k8s_addon" "quota" {
  name          = "quota"
  pki           = k8s_pki.this.ref
  control_plane = k8s_control_plane.this.ref

  manifests = [local.quota]

  # Not shown in plans. The objects belong to the addon as well.
  sensitive_manifests = [yamlencode({
    apiVersion = "v1"
    kind       = "Secret"
    metadata   = { name = "registry", namespace = "default" }
    stringData = { password = var.registry_password }
  })]

  depends_on = [k8s_worker_pool.this]
}

locals {
  quota = yamlencode({
    apiVersion = "v1"
    kind       = "ResourceQuota"
    metadata   = { name = "pods", namespace = "default" }
    spec       = { hard = { pods = "20" } }
  })
}

variable "registry_password" {
  type      = string
  sensitive = true
}
