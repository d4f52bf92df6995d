# The private key is stored in Terraform's state. Prefer the ephemeral resource.
resource "k8s_kubeconfig" "viewer" {
  control_plane = k8s_control_plane.this.ref
  user          = "viewer"
  groups        = ["viewers"]
  ttl           = "720h"
}
