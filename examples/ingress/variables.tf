variable "admin_cidrs" {
  type        = list(string)
  description = "Networks that may reach SSH and the API server, for example [\"198.51.100.7/32\"]."
}

variable "node_profile" {
  type        = string
  description = "Instance profile of the nodes, whose role has examples/iam/service-load-balancers.json: the guide on load balancers for Services."
}

variable "nodeport_cidrs" {
  type        = list(string)
  default     = null
  description = "Networks that may reach the NodePorts of workers without a load balancer. Null means none."
}

variable "paused" {
  type        = bool
  default     = false
  description = "Whether the cluster is paused: all machines are stopped, and the load balancer stays."
}

variable "elsewhere" {
  type        = any
  default     = {}
  description = "Settings of places other than plain AWS, as of examples/modules/cluster. The local EC2 sets it."
}
