resource "k8s_network" "this" {
  ignore_rules = { description_prefixes = ["kubernetes.io/rule/nlb/"] }
}

resource "k8s_machine" "worker" {
  instance_profile = "k8s-worker"
}
