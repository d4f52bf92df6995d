# What the six-machine example does not use.

resource "k8s_addon" "metrics_server" {
  name          = "metrics-server"
  control_plane = k8s_control_plane.this.ref
}

resource "k8s_addon" "viewers" {
  name          = "viewers"
  control_plane = k8s_control_plane.this.ref

  manifests = [yamlencode({
    apiVersion = "rbac.authorization.k8s.io/v1"
    kind       = "ClusterRoleBinding"
    metadata   = { name = "viewers" }
    roleRef    = { apiGroup = "rbac.authorization.k8s.io", kind = "ClusterRole", name = "view" }
    subjects   = [{ apiGroup = "rbac.authorization.k8s.io", kind = "Group", name = "viewers" }]
  })]
}

resource "k8s_kubeconfig" "viewer" {
  control_plane = k8s_control_plane.this.ref
  user          = "viewer"
  groups        = ["viewers"]
  ttl           = "2h"
}

ephemeral "k8s_kubeconfig" "admin" {
  control_plane = k8s_control_plane.this.ref
  ttl           = "1h"

  lifecycle {
    postcondition {
      condition     = self.host == k8s_control_plane.this.ref.endpoint && strcontains(self.kubeconfig_raw, "client-key-data") && startswith(self.client_certificate, "-----BEGIN CERTIFICATE-----")
      error_message = "The ephemeral kubeconfig is not complete."
    }
  }
}

output "viewer" {
  value     = k8s_kubeconfig.viewer.kubeconfig_raw
  sensitive = true
}
