terraform {
  required_version = ">= 1.11"

  required_providers {
    k8s = {
      source = "k8s-from-scratch/k8s"
    }
  }
}
