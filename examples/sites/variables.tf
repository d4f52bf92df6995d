variable "region" {
  type        = string
  default     = null
  description = "AWS region of the cluster on EC2. Null means the region of the environment or of the profile."
}

variable "profile" {
  type        = string
  default     = null
  description = "Profile of the credentials for AWS. Null means the credentials of the environment."
}

variable "admin_cidrs" {
  type        = list(string)
  description = "Networks that may reach SSH and the API server of the cluster on EC2, for example [\"198.51.100.7/32\"]."
}

variable "basement_ssh_key_file" {
  type        = string
  default     = null
  description = "SSH private key for the machines in the basement. Null means K8S_SSH_PRIVATE_KEY_FILE, as for those on EC2."
}

variable "basement_network" {
  type        = string
  description = "Network of the machines in the basement, for example 192.168.1.0/24."
}

variable "basement_controllers" {
  type = map(object({
    address  = string
    host_key = string
  }))
  description = "The controller in the basement by its name, as of examples/own-machines."
}

variable "basement_workers" {
  type = map(object({
    index    = number
    address  = string
    host_key = string
  }))
  description = "The workers in the basement by their names, as of examples/own-machines."
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
