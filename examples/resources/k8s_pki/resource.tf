# Private keys go to SSM Parameter Store, below /k8s/demo/pki/.
resource "k8s_pki" "this" {
  cluster   = "demo"
  key_store = "ssm"
}
