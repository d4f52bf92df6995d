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

variable "instance_type" {
  type    = string
  default = "t3.medium"
}

variable "ami" {
  type        = string
  default     = null
  description = "AMI of the machines: an id, or an SSM parameter as resolve:ssm:NAME. Null means the newest Debian 13."
}

variable "pod_cidr" {
  type        = string
  default     = "10.200.0.0/16"
  description = "Network of the pods. Each worker gets a /24 of it."
}

variable "snapshot_bucket" {
  type        = string
  default     = null
  description = "S3 bucket for hourly snapshots of etcd. They are worth nothing without the keys: add k8s_pki_copy. Null means none."
}

variable "controller_profile" {
  type        = string
  default     = null
  description = "Instance profile of the controllers. Its role may write to snapshot_bucket, as in examples/iam/etcd-snapshots.json."
}

variable "data_volume_size" {
  type        = number
  default     = null
  description = "Size in GiB of a volume for the data of each etcd member, which stays when its machine is replaced. Null means that they are on the root disks. Set it in terraform.tfvars before the first apply: an apply without it would delete the volumes."
}

# The following variables are for places other than plain AWS: slow machines, a registry mirror, a
# kubelet on cgroup v1, a kube-proxy in a container. The local EC2 sets some of them in a variable
# file.

variable "timeout" {
  type        = string
  default     = null
  description = "How long each operation on a resource may take, such as 60m. Single waits take longer in proportion. Null means the provider's defaults."
}

variable "check_interval" {
  type        = string
  default     = null
  description = "How often HAProxy asks each API server whether it is ready, up to 8s. Slow machines need a longer interval. Null means the provider's default."
}

variable "etcd_flags" {
  type        = any
  default     = null
  description = "Flags of etcd: an object. Slow machines need a longer heartbeat-interval and election-timeout, in milliseconds."
}

variable "registry_mirrors" {
  type        = map(string)
  default     = {}
  description = "Image registry host to the URL of its mirror."
}

variable "kubelet_config" {
  type        = any
  default     = null
  description = "KubeletConfiguration fields, merged over the provider's: an object."
}

variable "kube_proxy_config" {
  type        = any
  default     = null
  description = "KubeProxyConfiguration fields, merged over the provider's: an object."
}

variable "containerd_config" {
  type        = any
  default     = null
  description = "containerd settings, merged over the provider's: an object."
}

variable "s3_endpoint" {
  type        = string
  default     = null
  description = "URL at which the controllers reach S3. Null means S3 of the region."
}
