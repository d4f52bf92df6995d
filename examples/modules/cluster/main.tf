# A whole cluster. Its machines are spread over the availability zones of its network in turn:
# controller-0 and worker-0 are in the first zone, controller-1 and worker-1 in the second.
#
# Where the module is used with for_each, a failure in one cluster holds up all others: Terraform orders resources by their
# addresses in the module. examples/classroom/each.sh applies each cluster by itself.
#
# The provider configuration k8s.direct makes what the bastion of a private cluster needs. The other
# one reaches all machines, of a private cluster through the bastion or through EC2 Instance Connect.

resource "k8s_network" "this" {
  provider           = k8s.direct
  cluster            = var.cluster
  admin_cidrs        = var.admin_cidrs
  nodeport_cidrs     = var.nodeport_cidrs
  vpc_id             = var.vpc_id
  subnet_ids         = var.subnet_ids
  zone_count         = var.availability_zones == null && var.subnet_ids == null ? var.zone_count : null
  availability_zones = var.availability_zones
  nat_gateways       = var.private ? var.nat_gateways : null
  bastion_role       = local.bastion ? "lb" : null
  controller_pods    = var.controller_nodes
  instance_types     = var.vpc_id == null ? [var.instance_type] : null
  paused             = var.paused
  expires_at         = var.expires_at

  instance_connect_endpoint = var.instance_connect

  # What the cloud controller manager makes for Services: its rules are no drift, and the end of the cluster is their end.
  ignore_rules     = var.node_profile == null ? null : { description_prefixes = ["kubernetes.io/rule/nlb/"] }
  delete_leftovers = var.node_profile != null
}

resource "k8s_machine" "bastion" {
  count         = local.bastion ? 1 : 0
  provider      = k8s.direct
  name          = "bastion"
  role          = "lb"
  network       = k8s_network.this.ref
  instance_type = var.instance_type
  ami           = var.ami
  image_policy  = var.image_policy
}

locals {
  bastion = var.private && !var.instance_connect
  zones   = try(length(coalesce(var.availability_zones, var.subnet_ids)), var.zone_count)

  # Workers get networks for their pods from the first one on, controllers from the last one down.
  pod_networks = pow(2, 24 - tonumber(split("/", var.pod_cidr)[1]))
  stage = {
    kubernetes_version = var.kubernetes_version
    etcd_version       = var.etcd_version
    kube_proxy         = var.kube_proxy
  }
  controller_stage = {
    kubernetes_version = var.kubernetes_version
    etcd_version       = var.etcd_machines > 0 ? null : var.etcd_version
    kube_proxy         = var.kube_proxy
  }

  # Members of etcd are on machines of their own if there are some, otherwise on the controllers.
  etcd_members = coalesce(var.etcd_members, [for i in range(max(var.etcd_machines, var.controllers)) : "${var.etcd_machines > 0 ? "etcd" : "controller"}-${i}" if i < (var.etcd_machines > 0 ? var.etcd_machines : var.controllers)])
  etcd_hosts   = [for name in local.etcd_members : one([for m in concat(k8s_machine.controller, k8s_machine.etcd) : m.host if m.name == name])]
}

# What is to be made anew with another generation of the cluster.
resource "terraform_data" "generation" {
  input = var.generation
}

resource "k8s_machine" "controller" {
  count         = var.controllers
  name          = "controller-${count.index}"
  role          = "controller"
  network       = k8s_network.this.ref
  private_ip    = provider::k8s::machine_address(k8s_network.this.node_cidrs[count.index % local.zones], "controller", floor(count.index / local.zones))
  pod_cidr      = var.controller_nodes ? provider::k8s::pod_cidr(var.pod_cidr, local.pod_networks - 1 - count.index) : null
  instance_type = var.instance_type
  ami           = var.ami
  image_policy  = var.image_policy
  stage         = local.controller_stage

  instance_profile            = var.controller_nodes && var.node_profile != null ? var.node_profile : try(var.snapshots.profile, null)
  cpu_credits                 = var.cpu_credits
  associate_public_ip_address = !var.private

  lifecycle {
    replace_triggered_by = [terraform_data.generation]
  }
}

resource "k8s_machine" "etcd" {
  count         = var.etcd_machines
  name          = "etcd-${count.index}"
  role          = "etcd"
  network       = k8s_network.this.ref
  private_ip    = provider::k8s::machine_address(k8s_network.this.node_cidrs[count.index % local.zones], "etcd", floor(count.index / local.zones))
  instance_type = var.instance_type
  ami           = var.ami
  image_policy  = var.image_policy
  stage         = local.stage

  instance_profile            = try(var.snapshots.profile, null)
  cpu_credits                 = var.cpu_credits
  associate_public_ip_address = !var.private

  lifecycle {
    replace_triggered_by = [terraform_data.generation]
  }
}

resource "k8s_machine" "worker" {
  count         = var.workers
  name          = "worker-${count.index}"
  role          = "worker"
  network       = k8s_network.this.ref
  private_ip    = provider::k8s::machine_address(k8s_network.this.node_cidrs[count.index % local.zones], "worker", floor(count.index / local.zones))
  pod_cidr      = provider::k8s::pod_cidr(var.pod_cidr, count.index)
  instance_type = var.instance_type
  spot          = var.spot
  ami           = var.ami
  image_policy  = var.image_policy
  stage         = local.stage

  instance_profile            = var.node_profile
  cpu_credits                 = var.cpu_credits
  associate_public_ip_address = !var.private

  lifecycle {
    replace_triggered_by = [terraform_data.generation]
  }
}

resource "k8s_machine" "lb" {
  count         = contains(local.endpoints, "lb") ? 1 : 0
  name          = "lb-0"
  role          = "lb"
  network       = k8s_network.this.ref
  private_ip    = provider::k8s::machine_address(k8s_network.this.node_cidrs[0], "lb", 0)
  instance_type = var.instance_type
  ami           = var.ami
  image_policy  = var.image_policy
  stage         = local.stage

  cpu_credits                 = var.cpu_credits
  associate_public_ip_address = !var.private

  lifecycle {
    replace_triggered_by = [terraform_data.generation]
  }
}

resource "k8s_pki" "this" {
  cluster   = var.cluster
  key_store = "ssm"
}

# Roles of AWS for pods: the guide of that name.
resource "k8s_workload_identity" "this" {
  count  = var.issuer_bucket == null ? 0 : 1
  pki    = k8s_pki.this.ref
  bucket = var.issuer_bucket
}

resource "k8s_lb" "this" {
  count       = contains(local.endpoints, "lb") ? 1 : 0
  host        = k8s_machine.lb[0].host
  controllers = k8s_machine.controller[*].host
  pki         = k8s_pki.this.ref
  public      = !var.private
  extra_files = lookup(var.extra_files, "lb", null)
}

resource "k8s_nlb" "this" {
  count       = contains(local.endpoints, "nlb") ? 1 : 0
  network     = k8s_network.this.ref
  controllers = k8s_machine.controller[*].host
  public      = !var.private
}

# While the cluster moves from one endpoint to the other there are both, and the certificates have the names
# of both.
locals {
  endpoints = compact([var.endpoint, var.endpoint_before])
}

# Another generation is another, empty etcd. replace_triggered_by would not say so to the provider, which refuses to
# delete the machines of all members under a cluster that stays.
resource "k8s_etcd_cluster" "this" {
  for_each = toset([tostring(var.generation)])

  version = var.etcd_version
  hosts   = local.etcd_hosts
  pki     = k8s_pki.this.ref

  restore_from = try(var.snapshots.restore, null) == null ? null : {
    bucket       = var.snapshots.bucket
    snapshot     = var.snapshots.restore
    endpoint     = var.elsewhere.aws_endpoint
    replace_data = true # what is newer than the snapshot
  }
}

# Snapshots are for going back to one, so few are taken by themselves, and they are kept.
resource "k8s_etcd_backup" "this" {
  count    = var.snapshots == null ? 0 : 1
  etcd     = k8s_etcd_cluster.this[tostring(var.generation)].ref
  hosts    = local.etcd_hosts
  bucket   = var.snapshots.bucket
  endpoint = var.elsewhere.aws_endpoint
  interval = "24h"
  max_age  = "8760h"
  keep     = 1000
  keep_for = "8760h"
  trigger  = var.snapshots.trigger

  lifecycle {
    replace_triggered_by = [terraform_data.generation]
  }
}

# The snapshot that the present trigger has taken, also when there are newer ones.
resource "terraform_data" "snapshot" {
  count            = var.snapshots == null ? 0 : 1
  input            = try(k8s_etcd_backup.this[0].newest.name, null)
  triggers_replace = var.snapshots.trigger

  lifecycle {
    ignore_changes = [input]
  }
}

resource "k8s_control_plane" "this" {
  version    = var.kubernetes_version
  hosts      = k8s_machine.controller[*].host
  etcd       = k8s_etcd_cluster.this[tostring(var.generation)].ref
  lb         = { lb = one(k8s_lb.this[*].ref), nlb = one(k8s_nlb.this[*].ref), none = null }[var.endpoint]
  extra_sans = var.endpoint_before == null ? null : { lb = one(k8s_lb.this[*].ref), nlb = one(k8s_nlb.this[*].ref) }[var.endpoint_before].names
  pod_cidr   = var.pod_cidr
  node_cidrs = k8s_network.this.node_cidrs

  access         = var.access
  authentication = var.authentication

  admission_plugins = var.admission_plugins
  extra_files       = lookup(var.extra_files, "controller", null)

  workload_identity = var.accepted_issuers == null ? one(k8s_workload_identity.this[*].ref) : null

  extra_args = {
    kube_apiserver = merge(
      {
        default-not-ready-toleration-seconds   = var.toleration_seconds
        default-unreachable-toleration-seconds = var.toleration_seconds
      },
      var.accepted_issuers == null ? {} : { service-account-issuer = var.accepted_issuers },
    )
  }

  lifecycle {
    replace_triggered_by = [terraform_data.generation]
  }
}

resource "k8s_worker_pool" "this" {
  hosts             = k8s_machine.worker[*].host
  control_plane     = k8s_control_plane.this.ref
  registries        = var.elsewhere.registries
  kubelet_config    = var.elsewhere.kubelet_config
  cni               = var.cni
  kube_proxy        = var.kube_proxy
  kube_proxy_config = var.kube_proxy ? var.elsewhere.kube_proxy_config : null
  containerd_config = var.elsewhere.containerd_config
  extra_files       = lookup(var.extra_files, "worker", null)

  lifecycle {
    replace_triggered_by = [terraform_data.generation]
  }
}

# The controllers as nodes: with the taint only pods that tolerate it run there. Pods cannot have the memory and the
# processor time of etcd and the control plane, which are no pods.
resource "k8s_worker_pool" "controllers" {
  count             = var.controller_nodes ? 1 : 0
  name              = "controllers"
  hosts             = k8s_machine.controller[*].host
  control_plane     = k8s_control_plane.this.ref
  labels            = merge({ "node-role.kubernetes.io/control-plane" = "" }, var.controller_taint ? { "node.kubernetes.io/exclude-from-external-load-balancers" = "" } : {})
  taints            = var.controller_taint ? [{ key = "node-role.kubernetes.io/control-plane", effect = "NoSchedule" }] : null
  registries        = var.elsewhere.registries
  kubelet_config    = merge({ kubeReserved = { cpu = "700m", memory = "1500Mi" } }, var.elsewhere.kubelet_config)
  cni               = var.cni
  kube_proxy        = var.kube_proxy
  kube_proxy_config = var.kube_proxy ? var.elsewhere.kube_proxy_config : null
  containerd_config = var.elsewhere.containerd_config

  # Pools that do not depend on one another are rolled at the same time.
  depends_on = [k8s_worker_pool.this]

  lifecycle {
    replace_triggered_by = [terraform_data.generation]
  }
}

resource "k8s_addon" "coredns" {
  name          = "coredns"
  control_plane = k8s_control_plane.this.ref
  depends_on    = [k8s_worker_pool.this, k8s_worker_pool.controllers]

  lifecycle {
    replace_triggered_by = [terraform_data.generation]
  }
}

resource "k8s_addon" "cloud_controllers" {
  count         = var.node_profile == null ? 0 : 1
  name          = "cloud-controller-manager"
  control_plane = k8s_control_plane.this.ref
  environment   = var.elsewhere.aws_endpoint == null ? null : { AWS_ENDPOINT_URL = var.elsewhere.aws_endpoint }
  depends_on    = [k8s_worker_pool.this, k8s_worker_pool.controllers]

  lifecycle {
    replace_triggered_by = [terraform_data.generation]
  }
}

# Objects of your own.
resource "k8s_addon" "own" {
  count         = length(var.manifests) > 0 ? 1 : 0
  name          = "own"
  control_plane = k8s_control_plane.this.ref
  manifests     = var.manifests

  lifecycle {
    replace_triggered_by = [terraform_data.generation]
  }
}
