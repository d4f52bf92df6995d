# "terraform test" plans this configuration. It needs no AWS account and makes nothing.

variables {
  admin_cidrs = ["198.51.100.7/32"]
}

run "members" {
  command = plan

  assert {
    condition     = toset(output.etcd_endpoints) == toset([for n in [15, 16, 17] : "https://10.240.0.${n}:2379"])
    error_message = "The members of etcd are on other machines."
  }
}
