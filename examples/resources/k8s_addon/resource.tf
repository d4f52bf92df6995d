variable "control_plane" {
  type        = any
  description = "ref of the k8s_control_plane"
}

resource "k8s_pki" "this" {
  cluster = "demo"
}

# Built in.
resource "k8s_addon" "coredns" {
  name          = "coredns"
  pki           = k8s_pki.this.ref
  control_plane = var.control_plane
}

# Your own.
resource "k8s_addon" "quota" {
  name          = "quota"
  pki           = k8s_pki.this.ref
  control_plane = var.control_plane

  manifests = [yamlencode({
    apiVersion = "v1"
    kind       = "ResourceQuota"
    metadata   = { name = "pods", namespace = "default" }
    spec       = { hard = { pods = "20" } }
  })]
}
