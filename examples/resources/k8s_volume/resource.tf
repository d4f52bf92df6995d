resource "k8s_volume" "member" {
  count      = 3
  name       = "member-${count.index}"
  network    = k8s_network.this.ref
  size       = 40
  iops       = 4000
  kms_key_id = "arn:aws:kms:eu-central-1:123456789012:key/1234abcd-12ab-34cd-56ef-1234567890ab"

  lifecycle {
    prevent_destroy = true
  }
}

resource "k8s_machine" "member" {
  count       = 3
  name        = "member-${count.index}"
  role        = "controller"
  network     = k8s_network.this.ref
  private_ip  = cidrhost(k8s_network.this.node_cidr, 50 + count.index)
  data_volume = { id = k8s_volume.member[count.index].id }
}
