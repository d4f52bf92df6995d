# What the teacher hands out to each student: a page, and files for OpenSSH. There is no secret in them.
locals {
  # Machines that a student may enter. Nodes of small clusters are controllers.
  ssh_hosts = { for name in keys(local.students) : name => { for host, h in module.student[name].hosts : host => h if contains(var.ssh_roles, h.role) } }

  ssh_config = {
    for name, hosts in local.ssh_hosts : name => join("", [
      for host, h in hosts : <<-END
        Host ${host}
          HostName ${h.address}
          Port ${h.port}
          User student
          HostKeyAlias ${name}-${host}
          UserKnownHostsFile known_hosts
          GlobalKnownHostsFile /dev/null
          StrictHostKeyChecking yes
      END
    ])
  }

  known_hosts = { for name, hosts in local.ssh_hosts : name => join("", [for host, h in hosts : "${name}-${host} ${h.host_key}\n"]) }

  pages = {
    for name, s in local.students : name => join("\n", flatten([
      "# The cluster ${name}",
      "",
      contains(var.locked_out, name) ? "Your access has ended." : join("\n", flatten([
        "The API is at ${module.student[name].endpoint}. You may:",
        "",
        [for a in var.access : "- ${a.cluster_role} ${a.namespace == null ? "in the whole cluster" : "in the namespace ${a.namespace}"}"],
        "",
        var.issuer == null ? local.certificate : local.sign_in,
        [for x in [local.authority] : x if try(var.issuer.ca, null) != null],
        local.first_steps,
        [for x in [s.size] : "After a pause the API has another address. Then you get this page and the kubeconfig again.\n" if x == "one"],
        [for x in [local.ssh_steps] : x if length(local.ssh_hosts[name]) > 0 && length(s.ssh_keys) > 0],
        [for host in keys(local.ssh_hosts[name]) : "    ssh -F ssh_config ${host}" if length(s.ssh_keys) > 0],
      ])),
      "",
    ]))
  }

  certificate = "Your teacher gives you a file `kubeconfig`. It has a key in it, so keep it to yourself. It works for a day at most."

  sign_in = <<-END
    Your teacher gives you a file `kubeconfig`. There is no secret in it. It runs the program `k8s-kubeconfig`, which you get from your teacher
    too: put it into your PATH, on macOS and Linux make it executable. At the first command a browser opens, in which you sign in at
    ${try(var.issuer.url, "")}.
  END

  authority = <<-END
    Keep the file `issuer.crt` beside the kubeconfig, and run kubectl in this directory: the certificate of the issuer is checked with it.
  END

  first_steps = <<-END
    With the file beside this page:

    ```sh
    export KUBECONFIG=$PWD/kubeconfig
    kubectl auth whoami
    kubectl get nodes
    kubectl create deployment web --image=nginx --replicas=2
    kubectl get pods --output=wide
    ```

    `kubectl` is one program:

    - Linux: `curl -LO https://dl.k8s.io/release/v${local.kubernetes_version}/bin/linux/amd64/kubectl`. Make it executable, and move it into your PATH.
    - macOS: the same with `darwin/arm64`, or `brew install kubectl`.
    - Windows: `winget install --exact --id Kubernetes.kubectl`. In PowerShell the first line is `$env:KUBECONFIG = "$PWD\kubeconfig"`.
  END

  ssh_steps = <<-END
    With your own SSH key, and the files `ssh_config` and `known_hosts` beside this page, you may enter machines. `sudo -i` makes you
    root there. What you break is yours to mend, or your teacher makes the cluster anew.
  END
}

# With an issuer the kubeconfig has no secret, and is made here. Otherwise k8s-kubeconfig makes one with a key that is in no state.
resource "k8s_kubeconfig" "student" {
  for_each      = { for name, s in local.students : name => s if var.issuer != null }
  control_plane = module.student[each.key].control_plane

  exec = {
    args = concat(["sign-in", "-issuer", var.issuer.url, "-client-id", var.issuer.client_id], var.issuer.ca == null ? [] : ["-ca-file", "issuer.crt"], var.issuer.args)
  }
}

locals {
  kubeconfigs = {
    for name in keys(local.students) : name => (
      contains(var.locked_out, name) ? "rm -f class/${name}/kubeconfig" :
      var.issuer == null ? "k8s-kubeconfig -cluster ${name} -endpoint ${module.student[name].endpoint} -user ${name} -groups students -ttl 24h -output class/${name}/kubeconfig" :
      "cat >class/${name}/kubeconfig <<'END OF FILE'\n${trimspace(nonsensitive(k8s_kubeconfig.student[name].kubeconfig_raw))}\nEND OF FILE"
    )
  }
}

# The authority of the issuer, for those computers that do not know it.
locals {
  authorities = {
    for name in keys(local.students) : name => (
      try(var.issuer.ca, null) == null ? "rm -f class/${name}/issuer.crt" :
      "cat >class/${name}/issuer.crt <<'END OF FILE'\n${trimspace(var.issuer.ca)}\nEND OF FILE"
    )
  }
}

output "hand_out" {
  description = "A shell script that makes a directory below class/ for each student: a page, files for OpenSSH, and a kubeconfig, unless the student is locked out. Without an issuer the kubeconfig is valid for a day."
  value = join("", [
    for name in keys(local.students) : <<-END
      mkdir -p class/${name}
      cat >class/${name}/README.md <<'END OF FILE'
      ${trimspace(local.pages[name])}
      END OF FILE
      cat >class/${name}/ssh_config <<'END OF FILE'
      ${trimspace(local.ssh_config[name])}
      END OF FILE
      cat >class/${name}/known_hosts <<'END OF FILE'
      ${trimspace(local.known_hosts[name])}
      END OF FILE
      ${local.authorities[name]}
      ${local.kubeconfigs[name]}
    END
  ])
}
