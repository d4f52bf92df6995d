#!/bin/sh
# Builds a base image of the lab's machines: build.sh CODENAME IMAGE FILES MIRROR KIND.
# KIND is container or vm. The image of a container is a root file system; that
# of a virtual machine a disk with one, a kernel and an initramfs.
# The environment has the packages to install, the units to mask (recipe.go) and
# the id of the disk's partition.
# Runs as root in mount and PID namespaces of its own, so that nothing it
# mounts or starts outlives it.
set -eu
codename=$1 image=$2 files=$3 mirror=$4 kind=$5
root=$image
[ "$kind" = container ] || root=$image.root
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
cp -R "$files/common/." "$root/"
if [ "$kind" = container ]; then
    # image/container has a program of this name, and the package keeps its own
    # beside it.
    in_root dpkg-divert --local --rename --divert /usr/bin/cloud-init.distrib --add /usr/bin/cloud-init
    cp -R "$files/container/." "$root/"
    chmod 0755 "$root"/usr/lib/k8s-lab/* "$root/usr/bin/cloud-init"
    in_root systemctl -q enable k8s-lab-early.service
else
    cp -R "$files/vm/." "$root/"
fi
echo LANG=C.UTF-8 > "$root/etc/default/locale"
# shellcheck disable=SC2154 # of the environment
for unit in $masked; do ln -sf /dev/null "$root/etc/systemd/system/$unit"; done
in_root systemctl -q enable systemd-networkd.service systemd-resolved.service
ln -sf ../run/systemd/resolve/stub-resolv.conf "$root/etc/resolv.conf"

rm -f "$root"/etc/ssh/ssh_host_* "$root/usr/sbin/policy-rc.d" "$root/etc/hostname" "$root/etc/machine-id" \
    "$root/var/lib/dbus/machine-id" "$root/etc/dpkg/dpkg.cfg.d/lab"
mirrors http://deb.debian.org/debian # until cloud-init writes its own
rm -rf "$root"/var/lib/apt/lists/* "$root"/var/cache/apt/*.bin "$root/var/lib/cloud"
find "$root/var/log" -type f -delete
umount "$root/proc"
if [ "$kind" = container ]; then
    mkdir -p "$root/var/lib/containerd" "$root/var/lib/kubelet" "$root/var/lib/etcd" "$root/lib/modules" "$root/var/log/journal"
    # Nothing is left to be done for the image at a first boot.
    touch "$root/etc/.updated" "$root/var/.updated"
    exit 0
fi

# The first boot gives the machine its id (machine-id(5)).
echo uninitialized > "$root/etc/machine-id"

echo "making the disk"
mkdir -p "$image"
# shellcheck disable=SC2154 # of the environment
echo "PARTUUID=$partition / ext4 rw,discard,errors=remount-ro 0 1" > "$root/etc/fstab"
cp "$root"/boot/vmlinuz-* "$image/vmlinuz"
cp "$root"/boot/initrd.img-* "$image/initrd.img"
truncate -s 2G "$image/disk.raw"
sfdisk -q "$image/disk.raw" << END
label: gpt
start=1MiB, uuid=$partition, type=4F68BCE3-E8CD-4DB1-96E7-FBCAF984B709
END
# The partition ends a mebibyte before the disk, where the table's copy is.
mkfs.ext4 -q -d "$root" -E offset=1048576 "$image/disk.raw" 2095104k
rm -rf "$root"
