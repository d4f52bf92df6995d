variable "pod_cidr" {
  type    = string
  default = "10.200.0.0/16"

  validation {
    condition = length(provider::k8s::network_problems({ nodes = ["10.240.0.0/24"], pods = [var.pod_cidr], office = ["10.0.0.0/12"] })) == 0
    error_message = join(" ", provider::k8s::network_problems({
      nodes = ["10.240.0.0/24"], pods = [var.pod_cidr], office = ["10.0.0.0/12"]
    }))
  }
}
