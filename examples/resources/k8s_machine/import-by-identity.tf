import {
  to       = k8s_machine.lb
  identity = { cluster = "demo", name = "lb-0" }
}
