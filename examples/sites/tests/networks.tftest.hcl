# "terraform test" plans this configuration. It needs no AWS account and no machine, and makes nothing.

variables {
  admin_cidrs          = ["198.51.100.7/32"]
  basement_network     = "192.168.1.0/24"
  basement_controllers = { controller-0 = { address = "192.168.1.10", host_key = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIAABAgMEBQYHCAkKCwwNDg8QERITFBUWFxgZGhscHR4f" } }
  basement_workers     = { worker-0 = { index = 0, address = "192.168.1.20", host_key = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIAABAgMEBQYHCAkKCwwNDg8QERITFBUWFxgZGhscHR4f" } }
}

run "two_clusters" {
  command = plan

  assert {
    condition     = output.endpoints.basement == "https://192.168.1.10:6443"
    error_message = "The controller in the basement is not the endpoint of its cluster."
  }

  assert {
    condition     = module.cloud.pod_cidrs["worker-0"] == "10.201.0.0/24" && contains(keys(module.basement.pod_routes), "10.200.0.0/24")
    error_message = "The clusters share a network of pods."
  }
}
