output "endpoint" {
  description = "URL of the Kubernetes API, stable for the life of the cluster."
  value       = k8s_lb.this.endpoint
}

output "availability_zones" {
  description = "Availability zones of the machines."
  value       = k8s_network.this.availability_zones
}
