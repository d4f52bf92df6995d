import {
  to = k8s_control_plane.this
  id = jsonencode({ hosts = k8s_machine.controller[*].host, etcd = merge(k8s_etcd_cluster.this.ref, { pki = "demo" }), lb = k8s_lb.this.ref })
}
