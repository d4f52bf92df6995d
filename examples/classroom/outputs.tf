output "endpoints" {
  description = "URL of the Kubernetes API for each student."
  value       = { for name in keys(local.students) : name => module.student[name].endpoint }
}

output "snapshots" {
  description = "The snapshot of each cluster at the beginning of the present lesson, for lessons/3.json. Null without snapshot_bucket."
  value       = var.snapshot_bucket == null ? null : { for name in keys(local.students) : name => module.student[name].snapshot }
}

output "costs" {
  description = "What the class needs and costs: machines, public addresses and GB of volumes, and with prices the costs of the hours, and of a day on which everything is paused."
  value = merge(local.needs, {
    running = format("%.2f", var.hours * (local.needs.machines * var.prices.machine_hour + local.needs.addresses * var.prices.address_hour) + local.needs.volume_gb * var.prices.volume_gb_day * var.hours / 24)
    paused  = format("%.2f", 24 * local.needs.addresses_paused * var.prices.address_hour + local.needs.volume_gb * var.prices.volume_gb_day)
  })
}

locals {
  balanced = length([for s in local.students : s if local.sizes[s.size].endpoint == "lb"])
  needs = {
    students         = length(local.students)
    machines         = sum(concat([0], [for s in local.students : local.machines[s.size]]))
    addresses        = sum(concat([0], [for s in local.students : local.machines[s.size]]))
    addresses_paused = local.balanced
    volume_gb        = sum(concat([0], [for s in local.students : 20 * local.machines[s.size]]))
  }
}
