# "terraform test" plans this configuration. It needs no machine and makes nothing.

variables {
  network     = "192.168.1.0/24"
  controllers = [{ address = "192.168.1.10", host_key = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIAABAgMEBQYHCAkKCwwNDg8QERITFBUWFxgZGhscHR4f" }]
  workers = [
    { address = "192.168.1.20", host_key = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIAABAgMEBQYHCAkKCwwNDg8QERITFBUWFxgZGhscHR4f" },
    { address = "192.168.1.21", host_key = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIAABAgMEBQYHCAkKCwwNDg8QERITFBUWFxgZGhscHR4f" },
  ]
}

run "routes" {
  command = plan

  assert {
    condition     = output.pod_routes == tomap({ "10.200.0.0/24" = "192.168.1.20", "10.200.1.0/24" = "192.168.1.21" })
    error_message = "A worker has no route to its pods."
  }
}

run "load_balancers" {
  command = plan

  variables {
    controllers    = [for i in range(3) : { address = "192.168.1.${10 + i}", host_key = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIAABAgMEBQYHCAkKCwwNDg8QERITFBUWFxgZGhscHR4f" }]
    load_balancers = [for i in range(2) : { address = "192.168.1.${4 + i}", host_key = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIAABAgMEBQYHCAkKCwwNDg8QERITFBUWFxgZGhscHR4f" }]
    virtual_ip     = "192.168.1.3"
  }

  assert {
    condition     = output.endpoint == "https://192.168.1.3:6443"
    error_message = "The endpoint is not the virtual address."
  }
}
