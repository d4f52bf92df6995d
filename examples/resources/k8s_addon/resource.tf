# Built in.
resource "k8s_addon" "metrics_server" {
  name          = "metrics-server"
  pki           = k8s_pki.this.ref
  control_plane = k8s_control_plane.this.ref
}

# Your own.
resource "k8s_addon" "quota" {
  name          = "quota"
  pki           = k8s_pki.this.ref
  control_plane = k8s_control_plane.this.ref

  manifests = [local.quota]
}

locals {
  quota = yamlencode({
    apiVersion = "v1"
    kind       = "ResourceQuota"
    metadata   = { name = "pods", namespace = "default" }
    spec       = { hard = { pods = "20" } }
  })
}
