resource "k8s_lb" "example" {
  host        = k8s_machine.lb.host
  controllers = k8s_machine.controller[*].host
  pki         = k8s_pki.this.ref
}
