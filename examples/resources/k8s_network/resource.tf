resource "k8s_network" "this" {
  name        = "demo"
  admin_cidrs = ["198.51.100.7/32"]
}
