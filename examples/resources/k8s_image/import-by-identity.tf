import {
  to       = k8s_image.node
  identity = { cluster = "demo", name = "node" }
}
