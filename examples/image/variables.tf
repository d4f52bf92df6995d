variable "cluster" {
  type    = string
  default = "demo"
}

variable "admin_cidrs" {
  type        = list(string)
  description = "Networks that may reach SSH and the API server, for example [\"198.51.100.7/32\"]."
}

variable "workers" {
  type    = number
  default = 2
}

variable "kubernetes_version" {
  type    = string
  default = "1.36.4"
}

variable "image_kubernetes_version" {
  type        = string
  default     = null
  description = "Kubernetes of the image, if it differs from that of the roles. Null means kubernetes_version."
}

variable "etcd_version" {
  type    = string
  default = "3.6.16"
}

variable "packages" {
  type        = list(string)
  default     = []
  description = "Packages of the distribution on every machine, beside those of the roles."
}

variable "base_ami" {
  type        = string
  default     = null
  description = "AMI on which the image is based. Null means the newest Debian 13."
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
  description = "Settings of places other than plain AWS, as of examples/ha-cluster. The local EC2 sets it."
}
