resource "k8s_nlb" "example" {
  network     = k8s_network.this.ref
  controllers = k8s_machine.controller[*].host
}
