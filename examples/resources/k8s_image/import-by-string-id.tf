# By its name in the cluster, or by the id of the AMI: "ami-0123456789abcdef0".
import {
  to = k8s_image.node
  id = "demo/node"
}
