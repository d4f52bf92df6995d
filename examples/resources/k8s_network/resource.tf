resource "k8s_network" "example" {
  cluster     = "example"
  admin_cidrs = ["198.51.100.7/32"]
}
