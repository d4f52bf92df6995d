resource "k8s_image" "node" {
  name               = "node"
  network            = k8s_network.this.ref
  roles              = ["controller", "etcd", "worker"]
  kubernetes_version = "1.36.4"
  packages           = ["chrony"]
  container_images   = ["quay.io/cilium/cilium:v1.19.0"]

  lifecycle {
    create_before_destroy = true
  }
}

resource "k8s_machine" "spare" {
  name         = "spare-0"
  role         = "worker"
  network      = k8s_network.this.ref
  private_ip   = cidrhost(k8s_network.this.node_cidr, 60)
  pod_cidr     = provider::k8s::pod_cidr("10.200.0.0/16", 40)
  ami          = k8s_image.node.id
  image_policy = "roll"
}
