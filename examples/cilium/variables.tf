variable "admin_cidrs" {
  type        = list(string)
  description = "Networks that may reach SSH and the API server, for example [\"198.51.100.7/32\"]."
}

variable "cni" {
  type        = string
  default     = "none"
  description = "Network of the pods: none, or bridge before a migration."
}

variable "controller_nodes" {
  type        = bool
  default     = false
  description = "Whether pods that tolerate the taint of controllers run there."
}

variable "kube_proxy" {
  type        = bool
  default     = false
  description = "Whether kube-proxy runs on the nodes, as before a migration."
}

# The following is for places other than plain AWS. The local EC2 sets it in a variable file.

variable "registry_mirrors" {
  type    = map(string)
  default = {}
}

variable "kubelet_config" {
  type    = any
  default = null
}

variable "kube_proxy_config" {
  type    = any
  default = null
}

variable "containerd_config" {
  type    = any
  default = null
}

locals {
  elsewhere = {
    registry_mirrors  = var.registry_mirrors
    kubelet_config    = var.kubelet_config
    kube_proxy_config = var.kube_proxy_config
    containerd_config = var.containerd_config
  }
}
