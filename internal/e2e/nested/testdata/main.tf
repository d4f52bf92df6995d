# A virtual machine that is the host of a local EC2.

terraform {
  required_providers {
    k8s = {
      source = "k8s-from-scratch/k8s"
    }
  }
}

provider "k8s" {
  patience = 4
}

variable "admin_cidrs" {
  type = list(string)
}

resource "k8s_network" "this" {
  cluster     = "nested"
  admin_cidrs = var.admin_cidrs
}

resource "k8s_machine" "host" {
  name             = "worker-0"
  role             = "worker"
  network          = k8s_network.this.ref
  instance_type    = "r6i.large"
  root_volume_size = 40
}

output "host" {
  value = k8s_machine.host.host
}
