import {
  to = k8s_worker_pool.this
  id = jsonencode({ hosts = k8s_machine.worker[*].host, control_plane = merge(k8s_control_plane.this.ref, { pki = "demo" }) })
}
