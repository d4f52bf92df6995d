list "k8s_network" "demo" {
  provider = k8s

  config {
    cluster = "demo"
  }
}
