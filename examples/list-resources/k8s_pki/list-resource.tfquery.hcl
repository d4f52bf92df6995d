list "k8s_pki" "demo" {
  provider = k8s

  config {
    cluster = "demo"
  }
}
