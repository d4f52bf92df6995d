terraform {
  required_providers {
    k8s = {
      source = "k8s-from-scratch/k8s"
    }
  }
}

# Region and credentials come from the environment, as for the AWS CLI. The SSH key comes from
# K8S_SSH_PRIVATE_KEY.
provider "k8s" {
  default_tags = {
    team = "platform"
  }
}
