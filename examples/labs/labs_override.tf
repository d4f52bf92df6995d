# For the exercises: settings of the cluster of examples/ha-cluster that some pages change, by the variables in labs.tf.
# They replace arguments of the same names in the configuration, also when the variable is null.
resource "k8s_addon" "coredns" {
  version = var.lab_coredns_version
  image   = var.lab_coredns_image
}

resource "k8s_control_plane" "this" {
  scheduler_config = var.lab_scheduler_config
  extra_args       = var.lab_extra_args
}
