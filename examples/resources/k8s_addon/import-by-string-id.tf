# Built in.
import {
  to = k8s_addon.metrics_server
  id = jsonencode({ name = "metrics-server", control_plane = merge(k8s_control_plane.this.ref, { pki = "demo" }) })
}

# Your own, with the manifests of the resource.
import {
  to = k8s_addon.quota
  id = jsonencode({ name = "quota", manifests = [local.quota], control_plane = merge(k8s_control_plane.this.ref, { pki = "demo" }) })
}
