# 10.200.2.0/24
output "pods_of_the_third_worker" {
  value = provider::k8s::pod_cidr("10.200.0.0/16", 2)
}
