# "terraform test" plans this configuration. It needs no AWS account and makes nothing.

variables {
  admin_cidrs  = ["198.51.100.7/32"]
  node_profile = "k8s-worker"
}

run "machines" {
  command = plan

  assert {
    condition     = length(distinct(values(output.private_ips))) == 4
    error_message = "Two machines have the same address, or there are not four."
  }
}
