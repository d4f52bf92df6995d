variable "hosts" {
  type        = map(any)
  description = "host of each k8s_machine, by name"
}

resource "k8s_pki" "this" {
  cluster = "demo"
}

resource "k8s_lb" "this" {
  cluster     = "demo"
  host        = var.hosts["lb-0"]
  controllers = [for i in range(3) : var.hosts["controller-${i}"]]
  pki         = k8s_pki.this.ref
}
