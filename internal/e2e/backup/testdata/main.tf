# Three etcd members that keep snapshots in S3, and nothing else of a cluster.

terraform {
  required_version = ">= 1.11"

  required_providers {
    k8s = {
      source = "k8s-from-scratch/k8s"
    }
  }
}

variable "admin_cidrs" {
  type = list(string)
}

variable "elsewhere" {
  type = object({ aws_endpoint = string })
}

variable "ami" {
  type    = string
  default = null
}

variable "keep" {
  type    = number
  default = null
}

variable "bucket" {
  type    = string
  default = "example-snapshots"
}

variable "restore" {
  type    = any
  default = null
}

variable "etcd_ca" {
  type    = list(number)
  default = [1]
}

resource "k8s_network" "this" {
  cluster     = "demo"
  admin_cidrs = var.admin_cidrs
}

resource "k8s_machine" "controller" {
  count            = 3
  name             = "controller-${count.index}"
  role             = "controller"
  network          = k8s_network.this.ref
  private_ip       = cidrhost(k8s_network.this.node_cidr, 10 + count.index)
  instance_profile = "k8s-controller"
  ami              = var.ami
}

resource "k8s_pki" "this" {
  cluster     = "demo"
  key_store   = "ssm"
  generations = { etcd_ca = var.etcd_ca }
}

resource "k8s_etcd_cluster" "this" {
  version = "3.6.16"
  hosts   = k8s_machine.controller[*].host
  pki     = k8s_pki.this.ref

  restore_from = var.restore
}

resource "k8s_etcd_backup" "this" {
  etcd     = k8s_etcd_cluster.this.ref
  hosts    = k8s_machine.controller[*].host
  bucket   = var.bucket
  endpoint = var.elsewhere.aws_endpoint
  interval = "1m"
  max_age  = "1h"
  keep     = var.keep
}
