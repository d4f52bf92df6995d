# What the provider's functions say of networks and releases, for addresses.tftest.hcl.

variable "networks" {
  type = map(list(string))
}

variable "versions" {
  type    = map(string)
  default = {}
}

output "networks" {
  value = provider::k8s::network_problems(var.networks)
}

output "versions" {
  value = provider::k8s::version_problems(var.versions)
}
