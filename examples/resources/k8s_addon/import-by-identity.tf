# A built-in one.
import {
  to       = k8s_addon.metrics_server
  identity = { cluster = "demo", name = "metrics-server" }
}
