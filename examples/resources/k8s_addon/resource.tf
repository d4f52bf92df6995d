# Built in.
resource "k8s_addon" "metrics_server" {
  name          = "metrics-server"
  control_plane = k8s_control_plane.this.ref

  # Its pods need nodes: without this, the addon could be applied before there are any.
  depends_on = [k8s_worker_pool.this]
}

# Load balancers for Services, and no Nodes of instances that are gone. The machines of the workers need an instance_profile.
resource "k8s_addon" "cloud_controllers" {
  name          = "cloud-controller-manager"
  control_plane = k8s_control_plane.this.ref
  depends_on    = [k8s_worker_pool.this]
}

# Volumes for pods, in a directory of each node.
resource "k8s_addon" "volumes" {
  name          = "local-path-provisioner"
  control_plane = k8s_control_plane.this.ref
  depends_on    = [k8s_worker_pool.this]
}

# Your own.
resource "k8s_addon" "quota" {
  name          = "quota"
  control_plane = k8s_control_plane.this.ref

  manifests = [local.quota]

  # Not shown in plans. The objects belong to the addon as well.
  sensitive_manifests = [yamlencode({
    apiVersion = "v1"
    kind       = "Secret"
    metadata   = { name = "registry", namespace = "default" }
    stringData = { password = var.registry_password }
  })]

  depends_on = [k8s_worker_pool.this]
}

# Fields that others set are left to them.
resource "k8s_addon" "settings" {
  name          = "settings"
  control_plane = k8s_control_plane.this.ref
  manifests     = [local.settings]

  ignore_fields = {
    "ConfigMap default/settings" = ["data.colour"]
  }

  depends_on = [k8s_worker_pool.this]
}

locals {
  quota = yamlencode({
    apiVersion = "v1"
    kind       = "ResourceQuota"
    metadata   = { name = "pods", namespace = "default" }
    spec       = { hard = { pods = "20" } }
  })
}

locals {
  settings = yamlencode({
    apiVersion = "v1"
    kind       = "ConfigMap"
    metadata   = { name = "settings", namespace = "default" }
    data       = { colour = "blue", size = "3" }
  })
}

variable "registry_password" {
  type      = string
  sensitive = true
}
