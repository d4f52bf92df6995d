variable "controllers" {
  type        = list(any)
  description = "host of each controller's k8s_machine"
}

variable "lb" {
  type        = any
  description = "host of the load balancer's k8s_machine"
}

resource "k8s_pki" "this" {
  cluster = "demo"
}

resource "k8s_lb" "this" {
  cluster     = "demo"
  host        = var.lb
  controllers = var.controllers
  pki         = k8s_pki.this.ref
}

resource "k8s_etcd_cluster" "this" {
  version = "3.6.16"
  hosts   = var.controllers
  pki     = k8s_pki.this.ref
}

resource "k8s_control_plane" "this" {
  version = "1.36.1"
  hosts   = var.controllers
  pki     = k8s_pki.this.ref
  etcd    = k8s_etcd_cluster.this.ref
  lb      = k8s_lb.this.ref

  extra_sans = ["api.demo.example.com"]

  controller_manager_args = {
    terminated-pod-gc-threshold = "100"
  }
}
