import {
  to       = k8s_worker_pool.this
  identity = { cluster = "demo", name = "workers" }
}
