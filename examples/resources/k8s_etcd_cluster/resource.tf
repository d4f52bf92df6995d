resource "k8s_etcd_cluster" "example" {
  version = "3.6.16"
  hosts   = k8s_machine.controller[*].host
  pki     = k8s_pki.this.ref
}

# Machines that k8s_machine does not manage are described by hand.
resource "k8s_etcd_cluster" "own_hosts" {
  version = "3.6.16"
  pki     = k8s_pki.this.ref

  hosts = [for i in range(3) : {
    name       = "etcd-${i}"
    address    = "192.0.2.${10 + i}"
    private_ip = "10.240.0.${50 + i}"
    user       = "debian"
    host_key   = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIFOM2a6iOjTkes9wwc39D+MHZX0Q/0vt+oS7diwh4Btc"
  }]
}
