# Takes from a machine what no two machines may share, before an image is made of it: a file that is there on a machine that is
# made for that alone. Nobody can log in afterwards. A second time there is nothing to take.
set -eu
builder=$1
if [ ! -e "$builder" ]; then
	echo "this machine was not made to become an image: $builder is missing" >&2
	exit 1
fi

# What packages have enabled: roles say what runs.
systemctl --quiet disable --now haproxy.service nftables.service 2>/dev/null || :
# Names are those of the VPC's resolver. Without this, cloud-init waits five seconds at each first boot for an answer by LLMNR.
if [ -d /etc/systemd ]; then
	mkdir -p /etc/systemd/resolved.conf.d
	printf '[Resolve]\nLLMNR=no\nMulticastDNS=no\n' >/etc/systemd/resolved.conf.d/image.conf
fi
systemctl --quiet disable print-host-key.service 2>/dev/null || :
rm -f /etc/systemd/system/print-host-key.service /etc/systemd/system/multi-user.target.wants/print-host-key.service

# The first boot of each machine makes these anew. What writes them at the shutdown stops first.
systemctl --quiet stop systemd-random-seed.service unattended-upgrades.service 2>/dev/null || :
cloud-init clean --logs >/dev/null
rm -rf /etc/ssh/ssh_host_* /etc/ssh/sshd_config.d/50-cloud-init.conf \
	/etc/netplan/50-cloud-init.yaml /etc/sudoers.d/90-cloud-init-users /etc/hostname /etc/machine-info /etc/nvme/hostnqn /etc/nvme/hostid \
	/etc/iscsi/initiatorname.iscsi /var/lib/systemd/random-seed /var/lib/systemd/credential.secret /var/lib/dbus/machine-id \
	/var/lib/dhcp/* /var/lib/dhcpcd/* /var/lib/NetworkManager/* /var/lib/systemd/timers/* /var/lib/systemd/timesync/* \
	/var/lib/containerd/io.containerd.grpc.v1.introspection
: >/etc/machine-id
if [ -e /etc/hosts ]; then
	sed -i '/^127\.0\.1\.1[[:space:]]/d' /etc/hosts
fi

# No machine needs these.
if command -v apt-get >/dev/null; then
	apt-get clean
fi
rm -rf /root/.bash_history /home/*/.bash_history /root/.cache /home/*/.cache /root/.lesshst /home/*/.lesshst /home/*/.sudo_as_admin_successful \
	/tmp/* /var/tmp/* /var/lib/apt/lists/* /var/lib/apt/periodic/* /var/cache/apt/*.bin /var/cache/k8s-from-scratch \
	/var/lib/wtmpdb/* /var/lib/lastlog/* /var/lib/sudo/lectured/* /var/lib/sudo/ts/*
journalctl --quiet --relinquish-var 2>/dev/null || :
rm -rf /var/log/journal/*
find /var/log -type f -delete

# From here on nobody can log in.
rm -rf /root/.ssh /home/*/.ssh
rm -f -- "$builder"
sync
