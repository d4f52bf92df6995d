# Takes from the machine what no two machines may share, and what a machine of a cluster
# does not need at its boot. It is the last script that runs on the machine.
set -eu

# What packages have enabled: roles say what runs.
systemctl --quiet disable --now haproxy.service nftables.service 2>/dev/null || :
# Upgrades are those of the image, and what else these timers do has nothing to do.
systemctl --quiet disable --now apt-daily.timer apt-daily-upgrade.timer unattended-upgrades.service \
	man-db.timer dpkg-db-backup.timer 2>/dev/null || :
# Names are those of the VPC's resolver. Without this, cloud-init waits five seconds at
# each first boot for an answer by LLMNR.
mkdir -p /etc/systemd/resolved.conf.d
printf '[Resolve]\nLLMNR=no\nMulticastDNS=no\n' >/etc/systemd/resolved.conf.d/image.conf

# The first boot of each machine makes these anew.
cloud-init clean --logs
rm -rf /etc/ssh/ssh_host_* /etc/ssh/sshd_config.d/50-cloud-init.conf /root/.ssh /home/*/.ssh \
	/etc/netplan/50-cloud-init.yaml /etc/sudoers.d/90-cloud-init-users /etc/hostname /etc/hosts \
	/var/lib/systemd/random-seed /var/lib/dbus/machine-id /var/lib/dhcpcd/* /var/lib/systemd/timers/* \
	/var/lib/containerd/io.containerd.grpc.v1.introspection
: >/etc/machine-id
printf 'http://deb.debian.org/debian\n' >/etc/apt/mirrors/debian.list
printf 'http://deb.debian.org/debian-security\n' >/etc/apt/mirrors/debian-security.list

# No machine needs these.
apt-get clean
rm -rf /root/.bash_history /home/*/.bash_history /home/*/.sudo_as_admin_successful /tmp/* /var/tmp/* \
	/var/lib/apt/lists/* /var/cache/apt/*.bin /var/cache/k8s-from-scratch
journalctl --quiet --relinquish-var
rm -rf /var/log/journal/*
find /var/log -type f -delete
sync
