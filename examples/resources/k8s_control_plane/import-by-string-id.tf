# By the name of the cluster.
import {
  to = k8s_control_plane.this
  id = "demo"
}

# With arguments, for machines that are not EC2 instances: write their objects in place of k8s_machine. The keys are in SSM,
# so pki is the name of the cluster.
import {
  to = k8s_control_plane.example
  id = jsonencode({ hosts = k8s_machine.controller[*].host, etcd = merge(k8s_etcd_cluster.this.ref, { pki = "demo" }), lb = k8s_lb.this.ref })
}
