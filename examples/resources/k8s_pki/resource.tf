# Private keys go to SSM Parameter Store, below /k8s/example/pki/.
resource "k8s_pki" "example" {
  cluster   = "example"
  key_store = "ssm"
}
