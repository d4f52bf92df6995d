# For the exercises, beside the configuration of examples/ha-cluster: a configuration of OpenSSH that knows each machine
# by its name, and accepts only the host key that the provider has pinned. `-F` names the file: ssh -F ssh_config controller-0.
output "ssh_config" {
  description = "Configuration of ssh for all machines, with their pinned host keys."
  value = join("\n", [
    for host in concat(k8s_machine.controller[*].host, k8s_machine.worker[*].host, [k8s_machine.lb.host]) : <<-END
      Host ${host.name}
        HostName ${host.role == "lb" ? k8s_lb.this.public_ip : host.address}
        Port ${host.port}
        User ${host.user}
        HostKeyAlias ${host.name}
        KnownHostsCommand /bin/echo ${host.name} ${host.host_key}
        HostKeyAlgorithms ${split(" ", host.host_key)[0]}
        UserKnownHostsFile /dev/null
        GlobalKnownHostsFile /dev/null
        StrictHostKeyChecking yes
        LogLevel ERROR
    END
  ])
}
