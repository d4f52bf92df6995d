# A cluster of a class without its programs: a network, keys and three machines.

terraform {
  required_providers {
    k8s = {
      source = "k8s-from-scratch/k8s"
    }
  }
}

provider "k8s" {}

variable "cluster" {
  type = string
}

resource "k8s_network" "this" {
  cluster     = var.cluster
  admin_cidrs = ["192.0.2.1/32"]
}

resource "k8s_machine" "this" {
  for_each = { controller-0 = "controller", worker-0 = "worker", lb-0 = "lb" }

  name    = each.key
  role    = each.value
  network = k8s_network.this.ref
}

resource "k8s_pki" "this" {
  cluster   = var.cluster
  key_store = "ssm"
}
