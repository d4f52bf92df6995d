# One controller and two workers, and Traefik as the Ingress controller. Its Service has a Network Load Balancer, which the
# cloud controller manager makes. The guide "Ingress" has the commands. Use three controllers for more than a trial.

provider "k8s" {}

module "cluster" {
  source         = "../modules/cluster"
  providers      = { k8s = k8s, k8s.direct = k8s }
  cluster        = "demo"
  admin_cidrs    = var.admin_cidrs
  nodeport_cidrs = var.nodeport_cidrs
  controllers    = 1
  node_profile   = var.node_profile
  paused         = var.paused
  elsewhere      = var.elsewhere
}

# Both depend on the whole module: its nodes run their pods, and its cloud controller manager has to delete the load balancer
# before it ends itself.
resource "k8s_addon" "traefik" {
  name          = "traefik"
  control_plane = module.cluster.control_plane
  manifests     = [file("${path.module}/traefik.yaml")]
  depends_on    = [module.cluster]
}

resource "k8s_addon" "websites" {
  name          = "websites"
  control_plane = module.cluster.control_plane
  manifests     = [file("${path.module}/websites.yaml")]
  depends_on    = [module.cluster]
}

output "endpoint" {
  value = module.cluster.endpoint
}

output "private_ips" {
  value = module.cluster.private_ips
}
