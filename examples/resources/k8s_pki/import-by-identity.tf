import {
  to       = k8s_pki.this
  identity = { cluster = "demo" }
}
