variable "admin_cidrs" {
  type        = list(string)
  description = "Networks that may reach SSH and the API server, for example [\"198.51.100.7/32\"]."
}

# Moving a running cluster takes two applies: see the guide on load balancers.

variable "endpoint" {
  type        = string
  default     = "nlb"
  description = "What carries the endpoint: nlb, or lb for HAProxy on a machine."
}

variable "endpoint_before" {
  type        = string
  default     = null
  description = "What carried it before, in the first of the two applies that move it. Null otherwise."
}

variable "elsewhere" {
  type        = any
  default     = {}
  description = "Settings of places other than plain AWS, as of examples/modules/cluster. The local EC2 sets it."
}
