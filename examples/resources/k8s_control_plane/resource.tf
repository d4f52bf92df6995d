resource "k8s_control_plane" "example" {
  version    = "1.36.4"
  hosts      = k8s_machine.controller[*].host
  etcd       = k8s_etcd_cluster.this.ref
  lb         = k8s_lb.this.ref
  node_cidrs = k8s_network.this.node_cidrs

  extra_sans = ["api.demo.example.com"]

  access = [
    { group = "viewers", cluster_role = "view" }, # certificates of k8s_kubeconfig with groups = ["viewers"]
    { group = "oidc:team-a", cluster_role = "edit", namespace = "team-a" },
  ]

  extra_args = {
    kube_controller_manager = { terminated-pod-gc-threshold = "100" }

    # A list gives a flag more than once; null takes one of the provider's away.
    kube_apiserver = {
      service-account-issuer = ["https://kubernetes.default.svc.cluster.local", "https://oidc.example.com"]
      goaway-chance          = null
    }
  }

  admission_plugins = {
    PodSecurity = {
      apiVersion = "pod-security.admission.config.k8s.io/v1"
      kind       = "PodSecurityConfiguration"
      defaults   = { enforce = "baseline" }
    }
  }
}
