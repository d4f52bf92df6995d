#!/bin/sh
# Makes a Debian root file system with AWS clients, or runs a command in one:
#   debian.sh make ROOT MIRROR PACKAGE...   as root
#   debian.sh run ROOT WORK COMMAND...      as root; WORK is /work for the command
# It runs in mount and PID namespaces of its own, so that nothing that it mounts or starts outlives it.
set -eu
what=$1 root=$2
shift 2
mount --make-rprivate /
case $what in
make)
  export DEBIAN_FRONTEND=noninteractive
  debootstrap --keyring=/usr/share/keyrings/debian-archive-keyring.gpg --variant=minbase bookworm "$root" "$1"
  shift
  mount -t proc proc "$root/proc"
  chroot "$root" apt-get install -q -y --no-install-recommends "$@" # debootstrap does not resolve virtual packages
  exec chroot "$root" apt-get clean
  ;;
run)
  mount --bind "$root" "$root"
  mount --bind "$1" "$root/work"
  shift
  mount --rbind /dev "$root/dev"
  mount -t proc proc "$root/proc"
  mount -t tmpfs tmpfs "$root/tmp"
  mount -t tmpfs tmpfs "$root/root"
  mount -o remount,bind,ro "$root"
  exec chroot "$root" "$@"
  ;;
esac
