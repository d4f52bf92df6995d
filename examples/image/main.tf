# A small cluster whose machines are made of an image of its own: it has everything that their roles install, so
# that no machine downloads anything.

provider "k8s" {}

resource "k8s_network" "this" {
  cluster     = var.cluster
  admin_cidrs = var.admin_cidrs
}

resource "k8s_image" "node" {
  name               = "node"
  network            = k8s_network.this.ref
  kubernetes_version = coalesce(var.image_kubernetes_version, var.kubernetes_version)
  etcd_version       = var.etcd_version
  packages           = var.packages
  ami                = var.base_ami
  registries         = var.elsewhere.registries

  # A change makes the new image first. Machines of the old one go on to run, and it stays as long as one does.
  lifecycle {
    create_before_destroy = true
  }
}

# A role installs its own version, whatever the image has.
check "image" {
  assert {
    condition     = k8s_image.node.versions["kubelet"] == var.kubernetes_version
    error_message = "The image has Kubernetes ${k8s_image.node.versions["kubelet"]}: each new machine downloads ${var.kubernetes_version}."
  }
}

resource "k8s_machine" "controller" {
  name       = "controller-0"
  role       = "controller"
  network    = k8s_network.this.ref
  private_ip = cidrhost(k8s_network.this.node_cidr, 10)
  ami        = k8s_image.node.id
}

resource "k8s_machine" "worker" {
  count        = var.workers
  name         = "worker-${count.index}"
  role         = "worker"
  network      = k8s_network.this.ref
  private_ip   = cidrhost(k8s_network.this.node_cidr, 20 + count.index)
  pod_cidr     = provider::k8s::pod_cidr("10.200.0.0/16", count.index)
  ami          = k8s_image.node.id
  image_policy = "roll"
}

resource "k8s_machine" "lb" {
  name       = "lb-0"
  role       = "lb"
  network    = k8s_network.this.ref
  private_ip = cidrhost(k8s_network.this.node_cidr, 4)
  ami        = k8s_image.node.id
}

resource "k8s_pki" "this" {
  cluster = var.cluster
}

resource "k8s_lb" "this" {
  host        = k8s_machine.lb.host
  controllers = [k8s_machine.controller.host]
  pki         = k8s_pki.this.ref
}

resource "k8s_etcd_cluster" "this" {
  version = var.etcd_version
  hosts   = [k8s_machine.controller.host]
  pki     = k8s_pki.this.ref
}

resource "k8s_control_plane" "this" {
  version    = var.kubernetes_version
  hosts      = [k8s_machine.controller.host]
  etcd       = k8s_etcd_cluster.this.ref
  lb         = k8s_lb.this.ref
  node_cidrs = k8s_network.this.node_cidrs
}

resource "k8s_worker_pool" "this" {
  hosts             = k8s_machine.worker[*].host
  control_plane     = k8s_control_plane.this.ref
  registries        = var.elsewhere.registries
  kubelet_config    = var.elsewhere.kubelet_config
  kube_proxy_config = var.elsewhere.kube_proxy_config
  containerd_config = var.elsewhere.containerd_config
}

resource "k8s_addon" "coredns" {
  name          = "coredns"
  control_plane = k8s_control_plane.this.ref
  depends_on    = [k8s_worker_pool.this]
}

output "endpoint" {
  value = k8s_lb.this.endpoint
}

output "image" {
  value = {
    id       = k8s_image.node.id
    versions = k8s_image.node.versions
  }
}
