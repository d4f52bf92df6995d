# Region and credentials come from the environment, as for the AWS CLI; the
# SSH key from K8S_SSH_PRIVATE_KEY.
provider "k8s" {
  default_tags = {
    team = "platform"
  }
}
