# The machines on which kubeadm makes its cluster: the machines of examples/ha-cluster, with a pod network
# on controllers too. A kubelet runs on each machine, so all have the security group of workers.

terraform {
  required_providers {
    k8s = {
      source = "k8s-from-scratch/k8s"
    }
  }
}

variable "admin_cidrs" {
  type = list(string)
}

locals {
  nodes = {
    controller-0 = { host = 10, pods = 0 }
    controller-1 = { host = 11, pods = 1 }
    controller-2 = { host = 12, pods = 2 }
    worker-0     = { host = 20, pods = 3 }
    worker-1     = { host = 21, pods = 4 }
  }
}

provider "k8s" {}

resource "k8s_network" "this" {
  cluster     = "kubeadm"
  admin_cidrs = var.admin_cidrs
}

resource "k8s_machine" "node" {
  for_each      = local.nodes
  name          = each.key
  role          = "worker"
  network       = k8s_network.this.ref
  private_ip    = cidrhost(k8s_network.this.node_cidr, each.value.host)
  pod_cidr      = cidrsubnet("10.200.0.0/16", 8, each.value.pods)
  instance_type = "t3.medium"
}

resource "k8s_machine" "lb" {
  name          = "lb-0"
  role          = "worker"
  network       = k8s_network.this.ref
  private_ip    = cidrhost(k8s_network.this.node_cidr, 30)
  instance_type = "t3.medium"
}

output "nodes" {
  value = { for name, m in k8s_machine.node : name => { address = m.private_ip, pods = m.pod_cidr } }
}

output "lb" {
  value = k8s_machine.lb.private_ip
}
