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

variable "elsewhere" {
  type        = any
  default     = {}
  description = "Settings of places other than plain AWS, as of examples/modules/cluster. The local EC2 sets it."
}
