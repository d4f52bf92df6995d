# "terraform test" plans this configuration. It needs no AWS account and makes nothing.

variables {
  admin_cidrs = ["198.51.100.7/32"]
  students = {
    ada = { size = "standard" }
    bob = {}
    cy  = { size = "one" }
  }
}

run "costs" {
  command = plan

  variables {
    hours  = 10
    prices = { machine_hour = 0.02, address_hour = 0.005, volume_gb_day = 0.003 }
  }

  assert {
    condition     = output.costs.machines == 10 && output.costs.volume_gb == 200
    error_message = "6 + 3 + 1 machines of 20 GB each."
  }

  assert {
    condition     = output.costs.running == "2.75" && output.costs.paused == "0.84"
    error_message = "Ten hours of ten machines cost 2.50, their volumes 0.25. A paused day costs 0.60 for volumes, and 0.24 for two addresses."
  }
}

run "long_name" {
  command = plan

  variables {
    students = { a-name-of-nineteen0 = {} }
  }

  expect_failures = [var.students]
}

run "name_within_a_name" {
  command = plan

  variables {
    students = { ada = {}, ada-b = {} }
  }

  expect_failures = [var.students]
}

run "strangers" {
  command = plan

  variables {
    paused     = ["dan"]
    rebuild    = { dan = 2 }
    locked_out = ["dan"]

    snapshot_bucket = "example-snapshots"
    back_to_lesson  = { dan = "3" }
  }

  expect_failures = [var.paused, var.rebuild, var.locked_out, var.back_to_lesson]
}

run "subnet_without_vpc" {
  command = plan

  variables {
    students = { ada = { subnet = "subnet-0123456789abcdef0" } }
  }

  expect_failures = [var.students]
}
