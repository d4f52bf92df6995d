import {
  to       = k8s_lb.this
  identity = { cluster = "demo" }
}
