resource "k8s_network" "example" {
  cluster     = "example"
  admin_cidrs = ["198.51.100.7/32"]
}

# Three availability zones, private subnets for machines, and a NAT gateway in each zone.
resource "k8s_network" "private" {
  cluster      = "private"
  admin_cidrs  = ["198.51.100.7/32"]
  bastion_role = "lb"
  zone_count   = 3
  nat_gateways = "per_zone"
}
