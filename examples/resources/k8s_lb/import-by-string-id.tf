# By the name of the cluster, or by the Elastic IP: "eipalloc-0123456789abcdef0".
import {
  to = k8s_lb.this
  id = "demo"
}

# On machines that are not EC2 instances.
import {
  to = k8s_lb.example
  id = jsonencode({ host = k8s_machine.lb.host, controllers = k8s_machine.controller[*].host, pki = k8s_pki.this.ref })
}
