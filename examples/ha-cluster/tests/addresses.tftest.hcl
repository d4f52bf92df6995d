# "terraform test" plans this configuration with many machines. It needs no AWS account and makes nothing.

variables {
  admin_cidrs = ["198.51.100.7/32"]
  controllers = 5
  workers     = 200
}

run "addresses" {
  command = plan

  assert {
    condition = length(distinct(concat(
      k8s_machine.controller[*].private_ip, k8s_machine.worker[*].private_ip, [k8s_machine.lb.private_ip],
    ))) == var.controllers + var.workers + 1
    error_message = "Two machines have the same address."
  }

  assert {
    condition     = length(distinct(k8s_machine.worker[*].pod_cidr)) == var.workers
    error_message = "Two workers have the same network for their pods."
  }
}

run "problems" {
  command = plan

  module {
    source = "./tests/problems"
  }

  variables {
    networks = { nodes = ["10.240.0.0/24"], pods = ["10.200.0.0/16"], services = ["10.32.0.0/20"], office = ["192.168.0.0/16"] }
    versions = { control_plane = "1.36.4", workers = "1.36.4", etcd = "3.6.16" }
  }

  assert {
    condition     = length(output.networks) == 0
    error_message = "The networks collide: ${join(" ", output.networks)}"
  }

  assert {
    condition     = length(output.versions) == 0
    error_message = "The releases do not go together: ${join(" ", output.versions)}"
  }
}
