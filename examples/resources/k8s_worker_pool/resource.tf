variable "workers" {
  type        = list(any)
  description = "host of each worker's k8s_machine"
}

variable "control_plane" {
  type        = any
  description = "ref of the k8s_control_plane"
}

resource "k8s_pki" "this" {
  cluster = "demo"
}

resource "k8s_worker_pool" "this" {
  version       = "1.36.1"
  hosts         = var.workers
  pki           = k8s_pki.this.ref
  control_plane = var.control_plane

  labels = {
    "example.com/pool" = "general"
  }

  kubelet_config = jsonencode({
    maxPods = 80
  })

  max_unavailable = 1
  drain_timeout   = "10m"
}
