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

  assert {
    condition = length(provider::k8s::network_problems({
      nodes = k8s_network.this.node_cidrs, pods = [var.pod_cidr], services = [k8s_control_plane.this.service_cidr],
    })) == 0
    error_message = "The networks collide."
  }

  assert {
    condition     = length(provider::k8s::version_problems({ control_plane = var.kubernetes_version, workers = var.kubernetes_version, etcd = var.etcd_version })) == 0
    error_message = "The releases do not go together."
  }
}

# The first problem of each list is what a variable's validation would say.
run "problems" {
  command = plan

  assert {
    condition     = provider::k8s::network_problems({ nodes = k8s_network.this.node_cidrs, pods = ["10.240.0.0/16"] })[0] == "nodes 10.240.0.0/24 overlaps pods 10.240.0.0/16."
    error_message = "An overlap is not found."
  }
}
