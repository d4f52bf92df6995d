variable "kubernetes_version" {
  type    = string
  default = "1.36.4"
}

variable "worker_version" {
  type    = string
  default = "1.35.8"

  validation {
    condition     = length(provider::k8s::version_problems({ control_plane = var.kubernetes_version, workers = var.worker_version })) == 0
    error_message = join(" ", provider::k8s::version_problems({ control_plane = var.kubernetes_version, workers = var.worker_version }))
  }
}
