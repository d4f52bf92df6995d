# For the exercises, beside the configuration of examples/ha-cluster: a configuration of OpenSSH that knows each machine
# by its name, and accepts only the host key that the provider has pinned. `-F` names the file: ssh -F ssh_config controller-0.
output "ssh_config" {
  description = "Configuration of ssh for all machines, with their pinned host keys."
  value = join("\n", [
    for host in concat(k8s_machine.controller[*].host, k8s_machine.worker[*].host, [k8s_machine.lb.host]) : <<-END
      Host ${host.name}
        HostName ${host.role == "lb" ? k8s_lb.this.public_ip : host.address}
        Port ${host.port}
        User ${host.user}
        HostKeyAlias ${host.name}
        KnownHostsCommand /bin/echo ${host.name} ${host.host_key}
        HostKeyAlgorithms ${split(" ", host.host_key)[0]}
        UserKnownHostsFile /dev/null
        GlobalKnownHostsFile /dev/null
        StrictHostKeyChecking yes
        LogLevel ERROR
    END
  ])
}

# Settings that some pages change. labs_override.tf replaces these arguments of the configuration: null means the default
# of the provider, also if the configuration sets something else. So put settings of your own here, as defaults.
variable "lab_coredns_version" {
  type        = string
  default     = null
  description = "Release of CoreDNS."
}

variable "lab_coredns_image" {
  type        = string
  default     = null
  description = "Image of CoreDNS, in place of a release."
}

variable "lab_scheduler_config" {
  type        = any
  default     = null
  description = "Fields of the scheduler's configuration."
}

variable "lab_extra_args" {
  type        = any
  default     = null
  description = "Flags of the control plane's programs."
}

variable "lab_status" {
  type        = bool
  default     = false
  description = "Whether the outputs slow_disks and round_trips ask the cluster."
}

data "k8s_cluster_status" "lab" {
  count         = var.lab_status ? 1 : 0
  control_plane = k8s_control_plane.this.ref
  controllers   = k8s_machine.controller[*].host
}

output "slow_disks" {
  description = "Machines whose disk is too slow for etcd."
  value       = var.lab_status ? [for machine, disk in data.k8s_cluster_status.lab[0].etcd_disks : machine if disk.slow] : null
}

output "round_trips" {
  description = "Machines with etcd, and the milliseconds of round trips to the farthest other member."
  value       = var.lab_status ? data.k8s_cluster_status.lab[0].etcd_round_trips : null
}

variable "lab_metrics_server" {
  type        = bool
  default     = false
  description = "Whether there is a metrics-server, for the page on autoscaling."
}

resource "k8s_addon" "lab_metrics_server" {
  count         = var.lab_metrics_server ? 1 : 0
  name          = "metrics-server"
  control_plane = k8s_control_plane.this.ref
  depends_on    = [k8s_worker_pool.this]
}

variable "lab_image" {
  type        = string
  default     = null
  description = "Image of the Deployment `web`, which needs sh and httpd of busybox. Null means that there is no such Deployment."
}

# A program of your own: a web server that computes for a moment when it is asked for /cgi-bin/work.
resource "k8s_addon" "lab_web" {
  count         = var.lab_image == null ? 0 : 1
  name          = "web"
  control_plane = k8s_control_plane.this.ref
  depends_on    = [k8s_worker_pool.this]
  manifests = [yamlencode({
    apiVersion = "apps/v1"
    kind       = "Deployment"
    metadata   = { name = "web", namespace = "default" }
    spec = {
      replicas = 1
      selector = { matchLabels = { app = "web" } }
      template = {
        metadata = { labels = { app = "web" } }
        spec = {
          terminationGracePeriodSeconds = 1
          containers = [{
            name  = "web"
            image = var.lab_image
            command = ["sh", "-c", <<-END
              mkdir -p /www/cgi-bin
              printf '#!/bin/sh\necho; n=0; while [ $n -lt 20000 ]; do n=$((n+1)); done; echo $n\n' >/www/cgi-bin/work
              chmod +x /www/cgi-bin/work
              exec httpd -f -p 8080 -h /www
            END
            ]
            readinessProbe = { tcpSocket = { port = 8080 }, periodSeconds = 1 }
            resources      = { requests = { cpu = "50m" }, limits = { cpu = "100m" } }
          }]
        }
      }
    }
  })]
}
