# Private keys go to SSM Parameter Store, below /k8s/example/pki/.
resource "k8s_pki" "example" {
  cluster   = "example"
  key_store = "ssm"
}

# A cluster whose Kubernetes CA is an intermediate of a company's root.
resource "k8s_pki" "company" {
  cluster = "company"
  authorities = {
    kubernetes_ca = {
      1 = {
        certificate_pem = var.cluster_ca.certificate
        chain_pem       = var.cluster_ca.chain # up to the root
        private_key_wo  = var.cluster_ca_key
      }
    }
  }
}

variable "cluster_ca" {
  type = object({ certificate = string, chain = string })
}

variable "cluster_ca_key" {
  type      = string
  ephemeral = true
}
