# By the name of the cluster.
import {
  to = k8s_control_plane.this
  id = "demo"
}

# On machines that are not EC2 instances.
import {
  to = k8s_control_plane.example
  id = jsonencode({ hosts = k8s_machine.controller[*].host, etcd = k8s_etcd_cluster.this.ref, lb = k8s_lb.this.ref, pki = k8s_pki.this.ref })
}
