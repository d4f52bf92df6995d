variable "admin_cidrs" {
  type        = list(string)
  description = "Networks that may reach SSH and the API server, for example [\"198.51.100.7/32\"]."
}

variable "node_profile" {
  type        = string
  default     = null
  description = "Instance profile of the nodes, with which the Node of an interrupted machine is deleted without an apply: see examples/modules/cluster. Null means none."
}

variable "elsewhere" {
  type        = any
  default     = {}
  description = "Settings of places other than plain AWS, as of examples/modules/cluster. The local EC2 sets it."
}
