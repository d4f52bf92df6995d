# 10.240.0.22
output "third_worker" {
  value = provider::k8s::machine_address("10.240.0.0/24", "worker", 2)
}
