resource "k8s_pki" "this" {
  cluster = "demo"
}

# The private key is kept in Terraform's state: prefer the ephemeral resource.
resource "k8s_kubeconfig" "viewer" {
  pki      = k8s_pki.this.ref
  endpoint = "https://203.0.113.9:6443"
  user     = "viewer"
  groups   = ["viewers"]
  ttl      = "720h"
}
