# "terraform test" plans this configuration. It needs no AWS account and makes nothing.

variables {
  admin_cidrs = ["198.51.100.7/32"]
}

run "no_machine_carries_the_endpoint" {
  command = plan

  assert {
    condition     = length(output.private_ips) == 5 && !contains(keys(output.private_ips), "lb-0")
    error_message = "There are other machines than three controllers and two workers."
  }
}

run "both_while_it_moves" {
  command = plan

  variables {
    endpoint_before = "lb"
  }

  assert {
    condition     = contains(keys(output.private_ips), "lb-0")
    error_message = "The old load balancer does not stay while the cluster moves."
  }
}
