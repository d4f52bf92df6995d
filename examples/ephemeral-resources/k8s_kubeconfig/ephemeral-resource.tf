ephemeral "k8s_kubeconfig" "admin" {
  control_plane = k8s_control_plane.this.ref
  ttl           = "1h"
}

# provider "kubernetes" {
#   host                   = ephemeral.k8s_kubeconfig.admin.host
#   cluster_ca_certificate = ephemeral.k8s_kubeconfig.admin.cluster_ca_certificate
#   client_certificate     = ephemeral.k8s_kubeconfig.admin.client_certificate
#   client_key             = ephemeral.k8s_kubeconfig.admin.client_key
# }
