data "k8s_cluster_status" "this" {
  control_plane = k8s_control_plane.this.ref
  controllers   = k8s_machine.controller[*].host
  workers       = k8s_machine.worker[*].host
}

output "status" {
  value = {
    healthy       = data.k8s_cluster_status.this.healthy
    version       = data.k8s_cluster_status.this.version
    api_servers   = data.k8s_cluster_status.this.api_servers
    nodes         = data.k8s_cluster_status.this.nodes
    etcd_members  = data.k8s_cluster_status.this.etcd_members
    etcd_quotas   = { for machine, d in data.k8s_cluster_status.this.etcd_databases : machine => d.quota }
    alarms        = data.k8s_cluster_status.this.alarms
    lease_holders = data.k8s_cluster_status.this.lease_holders
    certificates  = data.k8s_cluster_status.this.certificates
    problems      = data.k8s_cluster_status.this.problems
  }
}
