import {
  to       = k8s_nlb.example
  identity = { cluster = "demo" }
}
