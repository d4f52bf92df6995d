#!/bin/sh
# Builds a base image of the lab's machines: build.sh CODENAME ROOT FILES MIRROR.
# The environment has the packages to install and the units to mask (recipe.go).
# Runs as root in mount and PID namespaces of its own, so that nothing it
# mounts or starts outlives it.
set -eu
codename=$1 root=$2 files=$3 mirror=$4
export DEBIAN_FRONTEND=noninteractive LC_ALL=C PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin
umask 022
mount --make-rprivate /

echo "debootstrap $codename from $mirror"
debootstrap --keyring=/usr/share/keyrings/debian-archive-keyring.gpg --variant=minbase \
    --include=ca-certificates "$codename" "$root" "$mirror"

# Where packages come from, as in Debian's cloud images: cloud-init writes the
# lists of mirrors, and nothing else, at the first boot.
cat > "$root/etc/apt/sources.list.d/debian.sources" << END
Types: deb deb-src
URIs: mirror+file:///etc/apt/mirrors/debian.list
Suites: $codename $codename-updates $codename-backports
Components: main

Types: deb deb-src
URIs: mirror+file:///etc/apt/mirrors/debian-security.list
Suites: $codename-security
Components: main
END
echo "# See /etc/apt/sources.list.d/debian.sources" > "$root/etc/apt/sources.list"
mirrors() {
    mkdir -p "$root/etc/apt/mirrors"
    echo "$1" > "$root/etc/apt/mirrors/debian.list"
    echo "$1-security" > "$root/etc/apt/mirrors/debian-security.list"
}
mirrors "${mirror%/}"
printf '#!/bin/sh\nexit 101\n' > "$root/usr/sbin/policy-rc.d"
chmod 0755 "$root/usr/sbin/policy-rc.d"
echo force-unsafe-io > "$root/etc/dpkg/dpkg.cfg.d/lab"

mount -t proc proc "$root/proc"
in_root() { chroot "$root" "$@"; }
apt="apt-get -q -y -o APT::Install-Recommends=false -o Acquire::Languages=none -o Acquire::IndexTargets::deb-src::Sources::DefaultEnabled=false"

in_root $apt update
in_root $apt dist-upgrade
# shellcheck disable=SC2086 # a list of words
in_root $apt install $packages
in_root apt-get clean

echo "configuring the image"
# image/root has a program of this name, and the package keeps its own beside it.
in_root dpkg-divert --local --rename --divert /usr/bin/cloud-init.distrib --add /usr/bin/cloud-init
cp -R "$files/." "$root/"
chmod 0755 "$root"/usr/lib/k8s-lab/* "$root/usr/bin/cloud-init"
echo LANG=C.UTF-8 > "$root/etc/default/locale"
for unit in $masked; do ln -sf /dev/null "$root/etc/systemd/system/$unit"; done
in_root systemctl -q enable k8s-lab-early.service systemd-networkd.service systemd-resolved.service
ln -sf ../run/systemd/resolve/stub-resolv.conf "$root/etc/resolv.conf"

rm -f "$root"/etc/ssh/ssh_host_* "$root/usr/sbin/policy-rc.d" "$root/etc/hostname" "$root/etc/machine-id" \
    "$root/var/lib/dbus/machine-id" "$root/etc/dpkg/dpkg.cfg.d/lab"
mirrors http://deb.debian.org/debian # until cloud-init writes its own
rm -rf "$root"/var/lib/apt/lists/* "$root"/var/cache/apt/*.bin "$root/var/lib/cloud"
find "$root/var/log" -type f -delete
mkdir -p "$root/var/lib/containerd" "$root/var/lib/kubelet" "$root/var/lib/etcd" "$root/lib/modules" "$root/var/log/journal"
umount "$root/proc"
# Nothing is left to be done for the image at a first boot.
touch "$root/etc/.updated" "$root/var/.updated"
