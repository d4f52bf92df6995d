# The controllers have an instance profile whose role may write to the bucket.
resource "k8s_etcd_backup" "example" {
  etcd     = k8s_etcd_cluster.this.ref
  hosts    = k8s_machine.controller[*].host
  bucket   = "example-snapshots"
  interval = "15m"
  keep     = 500
}

output "newest_snapshot" {
  value = k8s_etcd_backup.example.newest.name
}
