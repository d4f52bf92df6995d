# By the name of the cluster.
import {
  to = k8s_etcd_cluster.this
  id = "demo"
}

# On machines that are not EC2 instances.
import {
  to = k8s_etcd_cluster.example
  id = jsonencode({ hosts = k8s_machine.controller[*].host, pki = k8s_pki.this.ref })
}
