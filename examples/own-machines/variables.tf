variable "cluster" {
  type        = string
  default     = "demo"
  description = "Name of the cluster."
}

variable "controllers" {
  type = map(object({
    address  = string
    host_key = string
  }))
  description = "The machines of the control plane by name, one or three: the address of each in the network, and its SSH host key as in /etc/ssh/ssh_host_ed25519_key.pub."
}

variable "load_balancers" {
  type = map(object({
    address  = string
    host_key = string
  }))
  default     = {}
  description = "Machines in front of several controllers, by name. Two of them share virtual_ip."
}

variable "virtual_ip" {
  type        = string
  default     = null
  description = "Address of the API that no machine has of its own, if there are two load balancers."
}

variable "workers" {
  type = map(object({
    index    = number
    address  = string
    host_key = string
  }))
  default     = {}
  description = "The machines that run pods, by name. The index of each is the number of its pod network: no other worker has it, and it stays."
}

variable "network" {
  type        = string
  description = "Network of the machines, for example 192.168.1.0/24. All of them are in it, without a router in between."
}

variable "ssh_user" {
  type        = string
  default     = null
  description = "User with passwordless sudo on all machines. Null means the provider's user."
}

variable "kubernetes_version" {
  type    = string
  default = "1.35.8"
}

variable "elsewhere" {
  type = object({
    registries        = optional(map(object({ mirrors = list(object({ url = string })) })), {})
    kubelet_config    = optional(any)
    kube_proxy_config = optional(any)
    containerd_config = optional(any)
  })
  default     = {}
  description = "Settings of places other than plain machines: a registry mirror, a kubelet on cgroup v1, a kube-proxy in a container."
}
