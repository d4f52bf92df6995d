# Virtual machines of libvirt for examples/own-machines: one controller and two workers in one network.
#
#   terraform apply
#   terraform output -json machines > ../own-machines/machines.auto.tfvars.json
#
# The provider of libvirt is not one of this project, and its releases change. This is written for 0.8.

terraform {
  required_version = ">= 1.11"

  required_providers {
    libvirt = {
      source  = "dmacvicar/libvirt"
      version = "~> 0.8.0"
    }
    tls = {
      source  = "hashicorp/tls"
      version = "~> 4.0"
    }
  }
}

variable "ssh_public_key" {
  type        = string
  description = "Public key of the user admin, as in ~/.ssh/id_ed25519.pub."
}

variable "image" {
  type        = string
  default     = "https://cloud.debian.org/images/cloud/trixie/latest/debian-13-genericcloud-amd64.qcow2"
  description = "Cloud image of Debian."
}

provider "libvirt" {
  uri = "qemu:///system"
}

locals {
  network = "192.168.150.0/24"
  machines = {
    controller-0 = { address = cidrhost(local.network, 10), memory = 4096 }
    worker-0     = { address = cidrhost(local.network, 20), memory = 4096 }
    worker-1     = { address = cidrhost(local.network, 21), memory = 4096 }
  }
}

# Machines of a network of libvirt are on one bridge, so they reach one another without a router. It has no
# network filter, which would drop packets of pods.
resource "libvirt_network" "this" {
  name      = "k8s"
  mode      = "nat"
  addresses = [local.network]
  autostart = true

  dhcp {
    enabled = false
  }

  # The network's own address answers for DNS. The machines use it, and pods by them.
  dns {
    enabled = true
  }
}

resource "libvirt_volume" "image" {
  name   = "debian.qcow2"
  source = var.image
  format = "qcow2"
}

resource "libvirt_volume" "disk" {
  for_each       = local.machines
  name           = "${each.key}.qcow2"
  base_volume_id = libvirt_volume.image.id
  size           = 20 * pow(1024, 3)
}

# The host keys are known before the machines are, so that nobody else can answer in their place. They are in
# the state of this configuration.
resource "tls_private_key" "host" {
  for_each  = local.machines
  algorithm = "ED25519"
}

resource "libvirt_cloudinit_disk" "this" {
  for_each = local.machines
  name     = "${each.key}.iso"

  user_data = "#cloud-config\n${yamlencode({
    hostname = each.key
    ssh_keys = {
      ed25519_private = tls_private_key.host[each.key].private_key_openssh
      ed25519_public  = trimspace(tls_private_key.host[each.key].public_key_openssh)
    }
    users = [{
      name                = "admin"
      shell               = "/bin/bash"
      sudo                = "ALL=(ALL) NOPASSWD:ALL"
      ssh_authorized_keys = [var.ssh_public_key]
    }]
  })}"

  network_config = yamlencode({
    version = 2
    ethernets = {
      lan = {
        match       = { name = "e*" }
        addresses   = ["${each.value.address}/24"]
        routes      = [{ to = "default", via = cidrhost(local.network, 1) }]
        nameservers = { addresses = [cidrhost(local.network, 1)] }
      }
    }
  })
}

resource "libvirt_domain" "this" {
  for_each  = local.machines
  name      = each.key
  memory    = each.value.memory
  vcpu      = 2
  cloudinit = libvirt_cloudinit_disk.this[each.key].id
  autostart = true

  cpu {
    mode = "host-passthrough"
  }

  disk {
    volume_id = libvirt_volume.disk[each.key].id
  }

  network_interface {
    network_id = libvirt_network.this.id
  }

  console {
    type        = "pty"
    target_port = "0"
    target_type = "serial"
  }
}

output "machines" {
  description = "Variables of examples/own-machines."
  value = {
    network = local.network
    controllers = { for name in ["controller-0"] : name => {
      address  = local.machines[name].address
      host_key = trimspace(tls_private_key.host[name].public_key_openssh)
    } }
    workers = { for i, name in ["worker-0", "worker-1"] : name => {
      index    = i
      address  = local.machines[name].address
      host_key = trimspace(tls_private_key.host[name].public_key_openssh)
    } }
  }
}
