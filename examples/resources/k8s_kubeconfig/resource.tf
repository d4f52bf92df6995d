# The private key is stored in Terraform's state. Prefer the ephemeral resource.
resource "k8s_kubeconfig" "viewer" {
  pki      = k8s_pki.this.ref
  endpoint = k8s_lb.this.endpoint
  user     = "viewer"
  groups   = ["viewers"]
  ttl      = "720h"
}
