# By the name of the cluster, or by the Elastic IP: "eipalloc-0123456789abcdef0".
import {
  to = k8s_lb.this
  id = "demo"
}

# With arguments, for machines that are not EC2 instances: write their objects in place of k8s_machine. The keys are in SSM,
# so pki is the name of the cluster.
import {
  to = k8s_lb.example
  id = jsonencode({ host = k8s_machine.lb.host, controllers = k8s_machine.controller[*].host, pki = "demo" })
}
