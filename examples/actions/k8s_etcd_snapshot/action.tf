# By hand, with `terraform apply -invoke=action.k8s_etcd_snapshot.now`.
action "k8s_etcd_snapshot" "now" {
  config {
    hosts = k8s_etcd_backup.example.hosts
  }
}

# Before every change of the control plane.
resource "k8s_control_plane" "this" {
  # ...

  lifecycle {
    action_trigger {
      events  = [before_update]
      actions = [action.k8s_etcd_snapshot.now]
    }
  }
}
