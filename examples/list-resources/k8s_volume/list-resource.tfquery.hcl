list "k8s_volume" "demo" {
  provider = k8s

  config {
    cluster = "demo"
  }
}
