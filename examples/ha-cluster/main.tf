resource "k8s_network" "this" {
  cluster     = var.cluster
  admin_cidrs = var.admin_cidrs
  paused      = var.paused
  expires_at  = var.expires_at
}

resource "k8s_volume" "etcd" {
  count   = var.data_volume_size == null ? 0 : var.controllers
  name    = "controller-${count.index}"
  network = k8s_network.this.ref
  size    = var.data_volume_size
}

resource "k8s_machine" "controller" {
  count       = var.controllers
  name        = "controller-${count.index}"
  role        = "controller"
  network     = k8s_network.this.ref
  private_ip  = cidrhost(k8s_network.this.node_cidr, 10 + count.index)
  ami         = var.ami
  stage       = local.stage
  data_volume = var.data_volume_size == null ? null : { id = k8s_volume.etcd[count.index].id }
}

resource "k8s_machine" "worker" {
  count      = var.workers
  name       = "worker-${count.index}"
  role       = "worker"
  network    = k8s_network.this.ref
  private_ip = cidrhost(k8s_network.this.node_cidr, 20 + count.index)
  pod_cidr   = cidrsubnet("10.200.0.0/16", 8, count.index)
  ami        = var.ami
  stage      = local.stage
}

resource "k8s_machine" "lb" {
  name       = "lb-0"
  role       = "lb"
  network    = k8s_network.this.ref
  private_ip = cidrhost(k8s_network.this.node_cidr, 4)
  ami        = var.ami
  stage      = local.stage
}

resource "k8s_pki" "this" {
  cluster = var.cluster
}

resource "k8s_lb" "this" {
  host        = k8s_machine.lb.host
  controllers = k8s_machine.controller[*].host
  pki         = k8s_pki.this.ref
}

resource "k8s_etcd_cluster" "this" {
  version = var.etcd_version
  hosts   = k8s_machine.controller[*].host
  pki     = k8s_pki.this.ref
}

resource "k8s_etcd_backup" "this" {
  count    = var.snapshot_bucket == null ? 0 : 1
  etcd     = k8s_etcd_cluster.this.ref
  hosts    = k8s_machine.controller[*].host
  bucket   = var.snapshot_bucket
  endpoint = var.elsewhere.aws_endpoint
}

resource "k8s_control_plane" "this" {
  version    = var.kubernetes_version
  hosts      = k8s_machine.controller[*].host
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
