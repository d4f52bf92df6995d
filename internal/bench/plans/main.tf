# The cluster that is measured: examples/ha-cluster with one controller, addresses for 200 workers,
# and without CoreDNS.

terraform {
  required_providers {
    k8s = {
      source = "k8s-from-scratch/k8s"
    }
  }
}

provider "k8s" {}

variable "workers" {
  type = number
}

variable "kubernetes" {
  type        = bool
  description = "Whether there is a control plane. Without one the workers are machines only."
}

resource "k8s_network" "this" {
  cluster     = "bench"
  admin_cidrs = ["192.0.2.1/32"]
}

resource "k8s_machine" "controller" {
  name       = "controller-0"
  role       = "controller"
  network    = k8s_network.this.ref
  private_ip = cidrhost(k8s_network.this.node_cidr, 10)
}

resource "k8s_machine" "worker" {
  count      = var.workers
  name       = "worker-${count.index}"
  role       = "worker"
  network    = k8s_network.this.ref
  private_ip = cidrhost(k8s_network.this.node_cidr, 20 + count.index)
  pod_cidr   = cidrsubnet("10.200.0.0/16", 8, count.index)
}

resource "k8s_machine" "lb" {
  name       = "lb-0"
  role       = "lb"
  network    = k8s_network.this.ref
  private_ip = cidrhost(k8s_network.this.node_cidr, 9)
}

resource "k8s_pki" "this" {
  cluster   = "bench"
  key_store = "ssm"
}

resource "k8s_lb" "this" {
  host        = k8s_machine.lb.host
  controllers = [k8s_machine.controller.host]
  pki         = k8s_pki.this.ref
  port        = 6444 # all machines share one network, in which the API server has 6443
}

resource "k8s_etcd_cluster" "this" {
  version = "3.6.16"
  hosts   = [k8s_machine.controller.host]
  pki     = k8s_pki.this.ref
}

resource "k8s_control_plane" "this" {
  count      = var.kubernetes ? 1 : 0
  version    = "1.36.4"
  hosts      = [k8s_machine.controller.host]
  etcd       = k8s_etcd_cluster.this.ref
  lb         = k8s_lb.this.ref
  pod_cidr   = "10.200.0.0/16"
  node_cidrs = k8s_network.this.node_cidrs
}

resource "k8s_worker_pool" "this" {
  count         = var.kubernetes ? 1 : 0
  version       = "1.36.4"
  hosts         = k8s_machine.worker[*].host
  control_plane = k8s_control_plane.this[0].ref
}
