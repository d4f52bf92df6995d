# One controller and two workers in one zone, and the EBS CSI driver: volumes for pods that move between nodes. The guide
# "Volumes for pods" says how to make the role and ebs-csi.yaml.
#
# Not run: the chart and its images cannot be had where the tests run. `make aws-smoke ARGS=-ebs` runs it in an account.

provider "k8s" {}

module "cluster" {
  source        = "../modules/cluster"
  providers     = { k8s = k8s, k8s.direct = k8s }
  cluster       = "demo"
  admin_cidrs   = var.admin_cidrs
  controllers   = 1
  issuer_bucket = var.issuer_bucket
  elsewhere     = var.elsewhere
}

# What `helm template` has made of the chart and values.yaml. Its controller waits until the role in values.yaml exists.
resource "k8s_addon" "ebs_csi" {
  for_each      = fileset(path.module, "ebs-csi.yaml")
  name          = "ebs-csi"
  control_plane = module.cluster.control_plane
  manifests     = [for name in fileset(path.module, "{${each.key},storageclass.yaml}") : file("${path.module}/${name}")]
}

output "endpoint" {
  value = module.cluster.endpoint
}

output "private_ips" {
  value = module.cluster.private_ips
}

output "issuer" {
  value = module.cluster.issuer
}
