# By the name of the cluster.
import {
  to = k8s_etcd_backup.example
  id = "demo"
}
