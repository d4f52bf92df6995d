import {
  to       = k8s_etcd_backup.example
  identity = { cluster = "demo" }
}
