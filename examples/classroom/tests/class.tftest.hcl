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
  }

  expect_failures = [var.paused, var.rebuild, var.locked_out]
}

run "a_stranger_goes_back" {
  command = plan

  variables {
    snapshot_bucket = "example-snapshots"
    back_to_lesson  = { dan = "../tests/lesson" }
  }

  expect_failures = [var.back_to_lesson]
}

run "subnet_without_vpc" {
  command = plan

  variables {
    students = { ada = { subnet = "subnet-0123456789abcdef0" } }
  }

  expect_failures = [var.students]
}

run "same_sign_in" {
  command = plan

  variables {
    students = { ada = {}, bob = { sign_in = "ada" } }
  }

  expect_failures = [var.students]
}

run "no_bucket_for_a_lesson" {
  command = plan

  variables {
    lesson = "3"
  }

  expect_failures = [var.lesson]
}

# tests/lesson.json is what a lesson's file may be: Ada has no snapshot, Bob has one, and Cy is missing.
run "no_bucket_to_go_back" {
  command = plan

  variables {
    back_to_lesson = { bob = "../tests/lesson" }
  }

  expect_failures = [var.back_to_lesson]
}

run "back_and_locked_out" {
  command = plan

  variables {
    snapshot_bucket = "example-snapshots"
    locked_out      = ["bob"]
    back_to_lesson  = { bob = "../tests/lesson" }
  }

  expect_failures = [var.back_to_lesson]
}

run "no_file_of_the_lesson" {
  command = plan

  variables {
    snapshot_bucket = "example-snapshots"
    back_to_lesson  = { bob = "99" }
  }

  expect_failures = [var.back_to_lesson]
}

run "no_snapshot_of_the_student" {
  command = plan

  variables {
    snapshot_bucket = "example-snapshots"
    back_to_lesson  = { ada = "../tests/lesson" }
  }

  expect_failures = [var.back_to_lesson]
}

run "a_student_who_came_later" {
  command = plan

  variables {
    snapshot_bucket = "example-snapshots"
    back_to_lesson  = { cy = "../tests/lesson" }
  }

  expect_failures = [var.back_to_lesson]
}

run "back" {
  command = plan

  variables {
    snapshot_bucket = "example-snapshots"
    lesson          = "4"
    locked_out      = ["ada"]
    back_to_lesson  = { bob = "../tests/lesson" }
  }

  assert {
    condition     = local.snapshots["bob"].restore == "20261201T080000Z-1234" && local.snapshots["ada"].restore == null
    error_message = "Bob goes back, and nobody else."
  }
}

run "issuer" {
  command = plan

  variables {
    students = { ada = { size = "one", sign_in = "ada@school.example" } }
    issuer = { url = "https://login.example.com", client_id = "kubernetes", username = "email", ca = <<-END
      -----BEGIN CERTIFICATE-----
      MIIBODCB66ADAgECAhQjxwn0zus0NYN0ozM3dwp6rdERMjAFBgMrZXAwEjEQMA4G
      A1UEAwwHZXhhbXBsZTAeFw0yNjEyMDEwNjA2MzNaFw0zNjExMjgwNjA2MzNaMBIx
      EDAOBgNVBAMMB2V4YW1wbGUwKjAFBgMrZXADIQAs/pt3w8yLuiVzz2IWos95qS7a
      Rr+cOYJZw0V7ejdH4KNTMFEwHQYDVR0OBBYEFPbxU9YR/sEwnUqx30PUxnkC6gyY
      MB8GA1UdIwQYMBaAFPbxU9YR/sEwnUqx30PUxnkC6gyYMA8GA1UdEwEB/wQFMAMB
      Af8wBQYDK2VwA0EAVWHX28du0gVWVWE3oJnz2yqyJzAvMhZ96QSfkrX6HqCmhC4l
      u/KR4DpvV0yvZ3smZ0M0rqwX7Mi5Osj+w0j5Aw==
      -----END CERTIFICATE-----
      END
    }
  }

  assert {
    condition     = strcontains(join(" ", k8s_kubeconfig.student["ada"].exec.args), "-ca-file issuer.crt")
    error_message = "The student's program needs the authority of the issuer."
  }

  assert {
    condition     = strcontains(local.authorities["ada"], "BEGIN CERTIFICATE") && length(local.authentication.jwt[0].claimValidationRules) == 1
    error_message = "The authority is handed out, and an address must be verified."
  }
}
