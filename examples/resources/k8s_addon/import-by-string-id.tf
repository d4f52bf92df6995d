# A built-in one, by the names of cluster and addon.
import {
  to = k8s_addon.metrics_server
  id = "demo/metrics-server"
}

# Your own, with the manifests of the resource.
import {
  to = k8s_addon.quota
  id = jsonencode({ name = "quota", manifests = [local.quota], control_plane = merge(k8s_control_plane.this.ref, { pki = "demo" }) })
}
