import {
  to       = k8s_etcd_cluster.this
  identity = { cluster = "demo" }
}
