# By the names of cluster and pool, if it is the cluster's only pool.
import {
  to = k8s_worker_pool.this
  id = "demo/workers"
}

# With arguments, for one of several pools, or for machines that are not EC2 instances: write their objects in place of
# k8s_machine. The keys are in SSM, so pki is the name of the cluster.
import {
  to = k8s_worker_pool.example
  id = jsonencode({ hosts = k8s_machine.worker[*].host, control_plane = merge(k8s_control_plane.this.ref, { pki = "demo" }) })
}
