output "endpoint" {
  description = "URL of the Kubernetes API, the same until the endpoint moves to another kind of load balancer. In a private cluster it is reached in the VPC only."
  value       = k8s_control_plane.this.ref.endpoint
}

output "availability_zones" {
  description = "Availability zones of the machines."
  value       = k8s_network.this.availability_zones
}

output "bastion" {
  description = "Bastion of a private cluster, for the provider's ssh. Null if there is none."
  value       = one([for m in k8s_machine.bastion : { address = m.public_ip, host_keys = [m.host_key] }])
}

output "hosts" {
  description = "Addresses, login users and host keys of the machines without the bastion, by name, for configurations of ssh."
  value = {
    for m in concat(k8s_machine.controller, k8s_machine.etcd, k8s_machine.worker, k8s_machine.lb) : m.name => {
      role     = m.role
      address  = m.role == "lb" && length(k8s_lb.this) > 0 && !var.private ? k8s_lb.this[0].public_ip : m.host.address
      user     = m.host.user
      port     = m.host.port
      host_key = m.host_key
    }
  }
}

output "relay" {
  description = "Instance through which people reach the API of a private cluster without a bastion, with SSH. Null without a machine lb-0."
  value       = one([for m in k8s_machine.lb : { instance_id = m.id, private_ip = m.private_ip, host_key = m.host_key }])
}

output "private_ips" {
  description = "Private addresses of the machines without the bastion, by name."
  value       = { for m in concat(k8s_machine.controller, k8s_machine.etcd, k8s_machine.worker, k8s_machine.lb) : m.name => m.private_ip }
}

output "pod_cidrs" {
  description = "Networks of the pods of each node, by its name."
  value       = { for m in concat(k8s_machine.controller, k8s_machine.worker) : m.name => m.pod_cidr if m.pod_cidr != null }
}

output "etcd_endpoints" {
  description = "URLs of the members of etcd, which the security groups open to controllers only."
  value       = k8s_etcd_cluster.this[tostring(var.generation)].ref.endpoints
}

output "snapshot" {
  description = "Name of the snapshot that the present trigger has taken. Null without snapshots."
  value       = one(terraform_data.snapshot[*].output)
}

output "control_plane" {
  description = "The control plane, for addons of its own."
  value       = k8s_control_plane.this.ref
}

output "issuer" {
  description = "Issuer of service accounts' tokens, and its OpenID Connect provider in IAM, for trust policies of roles. Null without issuer_bucket."
  value       = one([for i in k8s_workload_identity.this : { url = i.issuer, provider_arn = i.provider_arn }])
}
