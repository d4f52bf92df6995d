# By the name of the cluster.
import {
  to = k8s_etcd_cluster.this
  id = "demo"
}

# With arguments, for machines that are not EC2 instances: write their objects in place of k8s_machine. The keys are in SSM,
# so pki is the name of the cluster.
import {
  to = k8s_etcd_cluster.example
  id = jsonencode({ hosts = k8s_machine.controller[*].host, pki = "demo" })
}
