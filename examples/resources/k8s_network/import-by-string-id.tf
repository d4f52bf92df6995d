# By the name of the cluster.
import {
  to = k8s_network.this
  id = "demo"
}
