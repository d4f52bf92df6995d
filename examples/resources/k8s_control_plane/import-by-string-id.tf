# By the name of the cluster.
import {
  to = k8s_control_plane.this
  id = "demo"
}

# On machines that are not EC2 instances. Its keys are in SSM: an import block takes no id with sensitive values.
import {
  to = k8s_control_plane.example
  id = jsonencode({ hosts = k8s_machine.controller[*].host, etcd = merge(k8s_etcd_cluster.this.ref, { pki = "demo" }), lb = k8s_lb.this.ref })
}
