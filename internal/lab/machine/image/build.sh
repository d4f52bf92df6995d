#!/bin/sh
# Builds the base image of the lab's machines: build.sh ROOT FILES MIRROR.
# Runs as root in mount and PID namespaces of its own, so that nothing it
# mounts or starts outlives it.
set -eu
root=$1 files=$2 mirror=$3
export DEBIAN_FRONTEND=noninteractive LC_ALL=C PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin
umask 022

echo "debootstrap bookworm from $mirror"
debootstrap --variant=minbase --keyring=/usr/share/keyrings/debian-archive-keyring.gpg \
    --include=ca-certificates bookworm "$root" "$mirror"

cat > "$root/etc/apt/sources.list" <<LIST
deb $mirror bookworm main
deb $mirror bookworm-updates main
deb ${mirror%/}-security bookworm-security main
LIST
printf '#!/bin/sh\nexit 101\n' > "$root/usr/sbin/policy-rc.d"
chmod 0755 "$root/usr/sbin/policy-rc.d"
echo force-unsafe-io > "$root/etc/dpkg/dpkg.cfg.d/lab"
# The configuration comes first, so that no package writes its own.
cp -R "$files/." "$root/"
chmod 0755 "$root"/usr/lib/k8s-lab/*

mount -t proc proc "$root/proc"
in_root() { chroot "$root" "$@"; }
apt="apt-get -q -y -o Dpkg::Options::=--force-confold -o APT::Install-Recommends=false"
in_root $apt update
in_root $apt dist-upgrade
in_root $apt install systemd systemd-sysv dbus openssh-server sudo cloud-init curl \
    ca-certificates iproute2 nftables iptables conntrack ipset kmod procps haproxy libseccomp2 ethtool \
    socat mount util-linux tar xz-utils less iputils-ping netcat-openbsd vim-tiny jq
in_root apt-get clean

echo "configuring the image"
for unit in \
    apt-daily.timer apt-daily-upgrade.timer dpkg-db-backup.timer e2scrub_all.timer e2scrub_reap.service \
    fstrim.timer man-db.timer logrotate.timer systemd-tmpfiles-clean.timer systemd-pstore.service \
    getty@.service serial-getty@.service console-getty.service container-getty@.service getty-static.service getty.target \
    systemd-logind.service systemd-networkd.service systemd-networkd.socket systemd-network-generator.service \
    systemd-networkd-wait-online.service systemd-resolved.service systemd-timesyncd.service \
    systemd-udevd.service systemd-udevd-control.socket systemd-udevd-kernel.socket systemd-udev-trigger.service \
    systemd-udev-settle.service ifupdown-pre.service networking.service \
    systemd-random-seed.service systemd-firstboot.service systemd-machine-id-commit.service \
    systemd-journal-flush.service systemd-update-utmp.service systemd-update-utmp-runlevel.service \
    systemd-update-done.service systemd-sysusers.service systemd-hwdb-update.service systemd-journal-catalog-update.service \
    ldconfig.service systemd-tmpfiles-setup-dev.service systemd-binfmt.service proc-sys-fs-binfmt_misc.automount \
    systemd-remount-fs.service systemd-ask-password-console.path systemd-ask-password-wall.path \
    sys-kernel-debug.mount sys-kernel-tracing.mount sys-kernel-config.mount sys-fs-fuse-connections.mount \
    dev-hugepages.mount dev-mqueue.mount modprobe@.service kmod-static-nodes.service \
    cloud-init-local.service cloud-config.service cloud-init-hotplugd.socket cloud-init-hotplugd.service
do ln -sf /dev/null "$root/etc/systemd/system/$unit"; done
mkdir -p "$root/etc/systemd/system-generators"
for generator in cloud-init-generator systemd-cryptsetup-generator systemd-debug-generator systemd-fstab-generator \
    systemd-getty-generator systemd-gpt-auto-generator systemd-hibernate-resume-generator systemd-integritysetup-generator \
    systemd-rc-local-generator systemd-run-generator systemd-system-update-generator systemd-sysv-generator systemd-veritysetup-generator
do ln -sf /dev/null "$root/etc/systemd/system-generators/$generator"; done
in_root systemctl -q enable ssh.service k8s-lab-early.service cloud-init.service cloud-final.service
in_root systemctl -q disable haproxy.service nftables.service || true
mkdir -p "$root/etc/systemd/system/multi-user.target.wants"
ln -sf /lib/systemd/system/cloud-init.target "$root/etc/systemd/system/multi-user.target.wants/cloud-init.target"
in_root systemctl -q set-default multi-user.target

rm -f "$root"/etc/ssh/ssh_host_* "$root/usr/sbin/policy-rc.d" "$root/etc/resolv.conf" "$root/etc/hostname" "$root/etc/machine-id" \
    "$root/var/lib/dbus/machine-id" "$root/etc/dpkg/dpkg.cfg.d/lab"
rm -rf "$root"/var/lib/apt/lists/* "$root"/var/log/* "$root"/var/cache/apt/*.bin "$root"/usr/share/doc/* "$root"/usr/share/man/* \
    "$root"/usr/share/locale/* "$root"/lib/modules "$root"/var/lib/cloud
mkdir -p "$root/var/lib/containerd" "$root/var/lib/kubelet" "$root/var/lib/etcd" "$root/lib/modules" "$root/var/log/apt"
for name in 50-pid-max.conf 99-protect-links.conf; do ln -sf /dev/null "$root/etc/sysctl.d/$name"; done
rm -f "$root"/etc/update-motd.d/*
umount "$root/proc"
touch "$root/etc/.updated" "$root/var/.updated"
