#!/usr/bin/env bash
# Installs the missing Debian packages that the local EC2 and the tests need. With the argument vm or nested
# it also installs the packages for virtual machines.
set -eu
need=()
want() { command -v "$1" >/dev/null 2>&1 || need+=("$2"); }
want systemd-nspawn systemd-container
want debootstrap debootstrap
want nft nftables
want ip iproute2
want lxcfs lxcfs
want ssh openssh-client
want curl curl
want git git
want sfdisk fdisk
want mkfs.xfs xfsprogs
want mkfs.ext4 e2fsprogs
want gcc gcc
want shellcheck shellcheck
want gpg gnupg
case "${1:-}" in
vm | nested)
  want qemu-system-x86_64 qemu-system-x86
  want qemu-img qemu-utils
  ;;
esac
# On Ubuntu debootstrap does not depend on this package.
[ -e /usr/share/keyrings/debian-archive-keyring.gpg ] || need+=(debian-archive-keyring)
[ -e /etc/ssl/certs/ca-certificates.crt ] || need+=(ca-certificates)
[ -e /usr/include/stdio.h ] || need+=(libc6-dev)
[ ${#need[@]} -eq 0 ] && exit 0
if [ "$(id -u)" != 0 ]; then
  echo "missing Debian packages: ${need[*]}; run as root, or: sudo apt-get install ${need[*]}" >&2
  exit 1
fi
if ! command -v apt-get >/dev/null 2>&1; then
  echo "missing programs from: ${need[*]} (Debian package names); install them with this system's package manager" >&2
  exit 1
fi
echo "installing ${need[*]}"
export DEBIAN_FRONTEND=noninteractive
log=$(mktemp)
trap 'rm -f "$log"' EXIT
{ apt-get update -q && apt-get install -y -q --no-install-recommends "${need[@]}"; } >"$log" 2>&1 || { tail -n 20 "$log" >&2; exit 1; }
