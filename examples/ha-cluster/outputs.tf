output "endpoint" {
  description = "URL of the Kubernetes API, stable for the life of the cluster."
  value       = k8s_lb.this.endpoint
}
