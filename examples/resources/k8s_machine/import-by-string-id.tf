# By its name in the cluster, or by the id of the instance: "i-0123456789abcdef0".
import {
  to = k8s_machine.lb
  id = "demo/lb-0"
}
