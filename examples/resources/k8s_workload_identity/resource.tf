# Everybody can read k8s/demo/issuer/* of the bucket.
resource "k8s_workload_identity" "this" {
  pki    = k8s_pki.this.ref
  bucket = "example-issuers"
}

# The value of `workload_identity` of k8s_control_plane.
output "workload_identity" {
  value = k8s_workload_identity.this.ref
}
