resource "k8s_worker_pool" "example" {
  version       = "1.36.4"
  hosts         = k8s_machine.worker[*].host
  control_plane = k8s_control_plane.this.ref

  labels = {
    "example.com/pool" = "general"
  }

  kubelet_config = {
    maxPods = 80
  }

  max_unavailable = 1
  drain_timeout   = "10m"
}
