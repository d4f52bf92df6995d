# A cluster of machines that exist already, without AWS: no credentials, no region. The provider needs SSH to
# them, with K8S_SSH_PRIVATE_KEY_FILE or the agent.
#
# One controller is the address of the API itself. In front of several there are load balancers, of which two
# share an address.

locals {
  controllers = [for name, m in var.controllers : {
    name       = name
    address    = m.address
    private_ip = m.address
    host_key   = m.host_key
    user       = var.ssh_user
  }]
  load_balancers = [for name, m in var.load_balancers : {
    name       = name
    address    = m.address
    private_ip = m.address
    host_key   = m.host_key
    user       = var.ssh_user
  }]
  workers = [for name, m in var.workers : {
    name       = name
    address    = m.address
    private_ip = m.address
    host_key   = m.host_key
    user       = var.ssh_user
    pod_cidr   = provider::k8s::pod_cidr("10.200.0.0/16", m.index)
  }]
}

# The private keys are in Terraform's state, which must be kept like a key: encrypted, for few people.
resource "k8s_pki" "this" {
  cluster   = var.cluster
  key_store = "state"
}

resource "k8s_etcd_cluster" "this" {
  version = "3.6.16"
  hosts   = local.controllers
  pki     = k8s_pki.this.ref
}

resource "k8s_lb" "this" {
  count       = length(local.load_balancers) > 0 ? 1 : 0
  host        = local.load_balancers[0]
  standbys    = slice(local.load_balancers, 1, length(local.load_balancers))
  virtual_ip  = var.virtual_ip
  controllers = local.controllers
  pki         = k8s_pki.this.ref
}

resource "k8s_control_plane" "this" {
  version      = var.kubernetes_version
  hosts        = local.controllers
  etcd         = k8s_etcd_cluster.this.ref
  lb           = one(k8s_lb.this[*].ref)
  service_cidr = "10.96.0.0/24"
  node_cidrs   = [var.network]

  # No VPC routes packets to pods, so all machines have the routes. Others in the network have none: what pods
  # send to them comes from the address of the pods' node.
  pod_routes = { for h in local.workers : h.pod_cidr => h.private_ip }
}

resource "k8s_worker_pool" "this" {
  hosts             = local.workers
  control_plane     = k8s_control_plane.this.ref
  registries        = var.elsewhere.registries
  kubelet_config    = var.elsewhere.kubelet_config
  kube_proxy_config = var.elsewhere.kube_proxy_config
  containerd_config = var.elsewhere.containerd_config
}

resource "k8s_addon" "coredns" {
  count         = length(local.workers) > 0 ? 1 : 0
  name          = "coredns"
  control_plane = k8s_control_plane.this.ref
  depends_on    = [k8s_worker_pool.this]
}

resource "k8s_kubeconfig" "admin" {
  control_plane = k8s_control_plane.this.ref
}

output "endpoint" {
  value = k8s_control_plane.this.ref.endpoint
}

output "kubeconfig" {
  value     = k8s_kubeconfig.admin.kubeconfig_raw
  sensitive = true
}

output "pod_routes" {
  value = k8s_control_plane.this.ref.pod_routes
}
