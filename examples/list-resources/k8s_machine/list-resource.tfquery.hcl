list "k8s_machine" "demo" {
  provider = k8s

  config {
    cluster = "demo"
  }
}

# Of every cluster, with all attributes.
list "k8s_machine" "all" {
  provider         = k8s
  include_resource = true
  limit            = 500
}
