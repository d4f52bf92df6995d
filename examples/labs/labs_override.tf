# For the exercises: settings of the cluster of examples/ha-cluster that some pages change. Null leaves them as they are.
variable "lab_coredns_version" {
  type        = string
  default     = null
  description = "Release of CoreDNS."
}

variable "lab_scheduler_config" {
  type        = any
  default     = null
  description = "Fields of the scheduler's configuration."
}

variable "lab_extra_args" {
  type        = any
  default     = null
  description = "Flags of the control plane's programs."
}

resource "k8s_addon" "coredns" {
  version = var.lab_coredns_version
}

resource "k8s_control_plane" "this" {
  scheduler_config = var.lab_scheduler_config
  extra_args       = var.lab_extra_args
}
