import {
  to       = k8s_volume.member[0]
  identity = { cluster = "demo", name = "member-0" }
}
