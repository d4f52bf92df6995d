# "terraform test" plans this configuration. It needs no machine and makes nothing.

variables {
  network     = "192.168.1.0/24"
  controllers = { controller-0 = { address = "192.168.1.10", host_key = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIAABAgMEBQYHCAkKCwwNDg8QERITFBUWFxgZGhscHR4f" } }
  workers = {
    worker-0 = { index = 0, address = "192.168.1.20", host_key = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIAABAgMEBQYHCAkKCwwNDg8QERITFBUWFxgZGhscHR4f" }
    worker-1 = { index = 1, address = "192.168.1.21", host_key = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIAABAgMEBQYHCAkKCwwNDg8QERITFBUWFxgZGhscHR4f" }
  }
}

run "routes" {
  command = plan

  assert {
    condition     = output.pod_routes == tomap({ "10.200.0.0/24" = "192.168.1.20", "10.200.1.0/24" = "192.168.1.21" })
    error_message = "A worker has no route to its pods."
  }
}

run "first_worker_less" {
  command = plan

  variables {
    workers = { worker-1 = { index = 1, address = "192.168.1.21", host_key = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIAABAgMEBQYHCAkKCwwNDg8QERITFBUWFxgZGhscHR4f" } }
  }

  assert {
    condition     = output.pod_routes == tomap({ "10.200.1.0/24" = "192.168.1.21" }) && local.workers[0].name == "worker-1"
    error_message = "The worker that stays gets another name or another network."
  }
}

run "load_balancers" {
  command = plan

  variables {
    controllers    = { for i in range(3) : "controller-${i}" => { address = "192.168.1.${10 + i}", host_key = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIAABAgMEBQYHCAkKCwwNDg8QERITFBUWFxgZGhscHR4f" } }
    load_balancers = { for i in range(2) : "lb-${i}" => { address = "192.168.1.${4 + i}", host_key = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIAABAgMEBQYHCAkKCwwNDg8QERITFBUWFxgZGhscHR4f" } }
    virtual_ip     = "192.168.1.3"
  }

  assert {
    condition     = output.endpoint == "https://192.168.1.3:6443"
    error_message = "The endpoint is not the virtual address."
  }
}
