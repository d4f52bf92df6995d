resource "k8s_addon" "cloud_controllers" {
  name          = "cloud-controller-manager"
  control_plane = k8s_control_plane.this.ref
  environment   = { AWS_ENDPOINT_URL = var.elsewhere.aws_endpoint }
  depends_on    = [k8s_worker_pool.this]
}

resource "k8s_addon" "volumes" {
  name          = "local-path-provisioner"
  control_plane = k8s_control_plane.this.ref
  depends_on    = [k8s_worker_pool.this]
}
