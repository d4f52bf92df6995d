# The private key is stored in Terraform's state. Prefer the ephemeral resource.
resource "k8s_kubeconfig" "viewer" {
  control_plane = k8s_control_plane.this.ref
  user          = "viewer"
  groups        = ["viewers"] # an entry of `access` of the control plane says what they may do
  ttl           = "720h"
}

# People who sign in: no secret, and the same for everybody.
resource "k8s_kubeconfig" "people" {
  control_plane = k8s_control_plane.this.ref
  exec = {
    args = ["sign-in", "-issuer", "https://login.example.com", "-client-id", "kubernetes"]
  }
}
