# "terraform test" plans this configuration. It needs no AWS account and makes nothing.

variables {
  admin_cidrs = ["198.51.100.7/32"]
}

run "pod_cidrs" {
  command = plan

  assert {
    condition     = length(distinct(values(output.pod_cidrs))) == 5
    error_message = "Two nodes have the same network for their pods."
  }
}
