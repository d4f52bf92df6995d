resource "k8s_network" "example" {
  name        = "example"
  admin_cidrs = ["198.51.100.7/32"]
}
