import {
  to       = k8s_control_plane.this
  identity = { cluster = "demo" }
}
