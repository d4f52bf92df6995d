# By the name of the cluster.
import {
  to = k8s_nlb.example
  id = "demo"
}
