# By the names of cluster and pool, if it is the cluster's only pool.
import {
  to = k8s_worker_pool.this
  id = "demo/workers"
}

# One of several pools, or one on machines that are not EC2 instances.
import {
  to = k8s_worker_pool.example
  id = jsonencode({ hosts = k8s_machine.worker[*].host, control_plane = merge(k8s_control_plane.this.ref, { pki = "demo" }) })
}
