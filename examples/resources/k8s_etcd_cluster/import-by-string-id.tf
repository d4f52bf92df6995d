import {
  to = k8s_etcd_cluster.this
  id = jsonencode({ hosts = k8s_machine.controller[*].host, pki = "demo" })
}
