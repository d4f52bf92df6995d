# A class: each student has a cluster. In the workspace default one apply makes all of them. In a workspace of a student's
# name an apply makes the cluster of this student only.

provider "k8s" {}

locals {
  kubernetes_version = "1.36.4"

  students = { for name, s in var.students : name => s if terraform.workspace == "default" || terraform.workspace == name }

  # standard has everything twice or three times. small is the least that shows leader election and a load balancer: pods run
  # on the controllers, and one of them has etcd. one is a single machine, without a load balancer.
  sizes = {
    standard = { controllers = 3, workers = 2, etcd = null, endpoint = "lb" }
    small    = { controllers = 2, workers = 0, etcd = ["controller-0"], endpoint = "lb" }
    one      = { controllers = 1, workers = 0, etcd = null, endpoint = "none" }
  }
  machines = { for size, s in local.sizes : size => s.controllers + s.workers + (s.endpoint == "lb" ? 1 : 0) }
}

module "student" {
  source   = "../modules/cluster"
  for_each = local.students

  providers        = { k8s = k8s, k8s.direct = k8s }
  cluster          = each.key
  admin_cidrs      = var.admin_cidrs
  vpc_id           = var.vpc_id
  subnet_ids       = each.value.subnet == null ? null : [each.value.subnet]
  controllers      = local.sizes[each.value.size].controllers
  workers          = local.sizes[each.value.size].workers
  etcd_members     = local.sizes[each.value.size].etcd
  endpoint         = local.sizes[each.value.size].endpoint
  controller_nodes = local.sizes[each.value.size].workers == 0
  controller_taint = local.sizes[each.value.size].workers > 0
  instance_type    = var.instance_type
  ami              = var.ami
  paused           = contains(var.paused, each.key)
  expires_at       = var.expires_at
  generation       = lookup(var.rebuild, each.key, 1)
  access           = contains(var.locked_out, each.key) ? [] : [for a in var.access : merge(a, local.subjects[each.key])]
  authentication   = local.authentication
  extra_files      = { for role in var.ssh_roles : role => local.ssh_files[each.key] if role != "worker" || local.sizes[each.value.size].workers > 0 }
  manifests        = local.manifests
  snapshots        = local.snapshots[each.key]
  cpu_credits      = startswith(var.instance_type, "t") ? "standard" : null # unlimited ones cost more
  elsewhere        = var.elsewhere

  kubernetes_version = local.kubernetes_version

  # Without it whoever may make pods is root on the nodes: a pod may have the node's files.
  admission_plugins = {
    PodSecurity = {
      apiVersion = "pod-security.admission.config.k8s.io/v1"
      kind       = "PodSecurityConfiguration"
      defaults   = { enforce = "baseline" }
      exemptions = { namespaces = ["kube-system"] }
    }
  }
}

# Who has access to a cluster. Each cluster has an authority of its own for certificates. One issuer knows all students, so a cluster
# knows its student by name.
locals {
  subjects = {
    for name, s in local.students : name => {
      group = var.issuer == null ? "students" : null
      user  = var.issuer == null ? null : "school:${coalesce(s.sign_in, name)}"
    }
  }

  authentication = var.issuer == null ? null : {
    jwt = [merge({
      issuer        = merge({ url = var.issuer.url, audiences = [var.issuer.client_id] }, var.issuer.ca == null ? {} : { certificateAuthority = var.issuer.ca })
      claimMappings = { username = { claim = var.issuer.username, prefix = "school:" } }
      }, var.issuer.username != "email" ? {} : {
      # Otherwise somebody could enter the address of another student at the issuer, and have this student's access.
      claimValidationRules = [{ expression = "claims.?email_verified.orValue(false) == true", message = "the address is not verified" }]
    })]
  }
}

# Each cluster has snapshots of its own: the secrets in one need the keys of its cluster.
locals {
  snapshots = {
    for name in keys(local.students) : name => var.snapshot_bucket == null ? null : {
      bucket  = var.snapshot_bucket
      profile = "k8s-${name}"
      trigger = var.lesson
      restore = contains(keys(var.back_to_lesson), name) ? jsondecode(file("${path.module}/lessons/${var.back_to_lesson[name]}.json"))[name] : null
    }
  }
}

# An account for students. sshd reads its keys only from a file of root. Who is locked out loses the account as well, with all its
# processes.
locals {
  ssh_files = {
    for name, s in local.students : name => merge(
      {
        "/etc/systemd/system/student-account.service" = {
          restarts = ["student-account.service"]
          content  = <<-END
            [Unit]
            Description=Account of the student

            [Service]
            Type=oneshot
            RemainAfterExit=yes
            ExecStart=/bin/sh -c '${contains(var.locked_out, name) ? ":" : "id student >/dev/null 2>&1 || useradd --create-home --shell /bin/bash student; usermod --expiredate \"\" student"}'
            ExecStop=/bin/sh -c 'usermod --expiredate 1 student; pkill -KILL -u student; :'

            [Install]
            WantedBy=multi-user.target
          END
        }
        "/etc/ssh/sshd_config.d/60-student.conf" = {
          restarts = ["ssh.service"]
          content  = "Match User student\n  AuthorizedKeysFile /etc/ssh/student_keys\n  PasswordAuthentication no\n"
        }
        "/etc/ssh/student_keys" = {
          content = join("", [for key in s.ssh_keys : "${key}\n" if !contains(var.locked_out, name)])
        }
      },
      { for path in ["/etc/sudoers.d/student"] : path => { mode = "0440", content = "student ALL=(ALL) NOPASSWD: ALL\n" } if !contains(var.locked_out, name) },
    )
  }
}

# Load balancers of Services cost money, and nobody sees them in this configuration. The ClusterRole view of Kubernetes shows
# what is in namespaces: in a class it shows nodes as well.
locals {
  manifests = [
    yamlencode({
      apiVersion = "v1"
      kind       = "ResourceQuota"
      metadata   = { name = "load-balancers", namespace = "default" }
      spec       = { hard = { "services.loadbalancers" = tostring(var.service_load_balancers) } }
    }),
    yamlencode({
      apiVersion = "rbac.authorization.k8s.io/v1"
      kind       = "ClusterRole"
      metadata   = { name = "class-view", labels = { "rbac.authorization.k8s.io/aggregate-to-view" = "true" } }
      rules = [
        { apiGroups = [""], resources = ["nodes", "persistentvolumes"], verbs = ["get", "list", "watch"] },
        { apiGroups = ["coordination.k8s.io"], resources = ["leases"], verbs = ["get", "list", "watch"] },
        { apiGroups = ["storage.k8s.io"], resources = ["storageclasses"], verbs = ["get", "list", "watch"] },
        { apiGroups = ["rbac.authorization.k8s.io"], resources = ["roles", "rolebindings", "clusterroles", "clusterrolebindings"], verbs = ["get", "list", "watch"] },
      ]
    }),
  ]
}
