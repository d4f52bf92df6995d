variable "admin_cidrs" {
  type        = list(string)
  description = "Networks that may reach SSH and the API server, for example [\"198.51.100.7/32\"]."
}

variable "cluster" {
  type        = string
  default     = "demo"
  description = "Name of the cluster, part of every name and tag."
}

variable "controllers" {
  type        = number
  default     = 3
  description = "Number of controllers, each with an etcd member. Use an odd number."
}

variable "workers" {
  type    = number
  default = 2
}

variable "kubernetes_version" {
  type    = string
  default = "1.36.4"
}

variable "etcd_version" {
  type    = string
  default = "3.6.16"
}

# What the roles will install. Every machine fetches its part from its first boot on.
locals {
  stage = {
    kubernetes_version = var.kubernetes_version
    etcd_version       = var.etcd_version
  }
}

variable "paused" {
  type        = bool
  default     = false
  description = "Whether the cluster is paused: all machines are stopped and keep their disks and addresses."
}

variable "expires_at" {
  type        = string
  default     = null
  description = "When all machines power themselves off, such as 2026-12-01T18:00:00Z, for a cluster that nobody may forget. It counts as paused then. Null means never."
}

variable "ami" {
  type        = string
  default     = null
  description = "AMI of the machines: an id, or an SSM parameter as resolve:ssm:NAME. Null means the newest Debian 13."
}

variable "snapshot_bucket" {
  type        = string
  default     = null
  description = "S3 bucket for hourly snapshots of etcd, to which the instance profile of the controllers must give access. They are worth nothing without the keys: add k8s_pki_copy. Null means none."
}

variable "data_volume_size" {
  type        = number
  default     = null
  description = "Size in GiB of a volume for the data of each etcd member, which stays when its machine is replaced. Null means that they are on the root disks. Set it in terraform.tfvars before the first apply: an apply without it would delete the volumes."
}

variable "elsewhere" {
  type = object({
    registries        = optional(map(object({ mirrors = list(object({ url = string })) })), {})
    kubelet_config    = optional(any)
    kube_proxy_config = optional(any)
    containerd_config = optional(any)
    aws_endpoint      = optional(string)
  })
  default     = {}
  description = "Settings of places other than plain AWS: a registry mirror, a kubelet on cgroup v1, a kube-proxy in a container, the URL at which programs on machines reach AWS. The local EC2 sets it."
}
