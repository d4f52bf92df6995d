# "terraform test" plans this configuration. It needs no AWS account and makes nothing.

variables {
  admin_cidrs = ["198.51.100.7/32"]
}

run "addresses" {
  command = plan

  assert {
    condition     = length(distinct(values(output.private_ips))) == 7
    error_message = "Two machines have the same address."
  }

  assert {
    condition     = length(distinct([for name, ip in output.private_ips : cidrsubnet("${ip}/24", 0, 0) if startswith(name, "controller")])) == 3
    error_message = "Two controllers are in the same zone."
  }
}
