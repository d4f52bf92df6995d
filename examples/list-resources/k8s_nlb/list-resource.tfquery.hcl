list "k8s_nlb" "demo" {
  provider = k8s

  config {
    cluster = "demo"
  }
}
