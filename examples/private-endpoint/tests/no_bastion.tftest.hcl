# "terraform test" plans this configuration. It needs no AWS account and makes nothing.

variables {
  admin_cidrs = ["198.51.100.7/32"]
}

run "no_bastion" {
  command = plan

  assert {
    condition     = length(output.private_ips) == 6 && module.cluster.bastion == null
    error_message = "There is a machine beside the cluster's own."
  }
}
