import {
  to       = k8s_network.this
  identity = { cluster = "demo" }
}
