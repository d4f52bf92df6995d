# Grows the partition and the file system at $root ("/" unless set) to the size of their
# disk, once the disk has that many bytes: bytes. Both stay mounted. Needs findmnt and
# lsblk (util-linux) and, for a partition, growpart (cloud-guest-utils, in every cloud
# image) or sfdisk.
set -eu
size=$1
PATH=$PATH:/usr/sbin:/sbin
root=${root:-/}
device=$(findmnt -no SOURCE "$root")
case $device in
/dev/*) ;;
*) exit 0 ;; # no disk: a container, an overlay
esac
device=$(readlink -f "$device") # /dev/root, /dev/disk/by-uuid/...
number=/sys/class/block/${device##*/}/partition
disk=$device
[ ! -e "$number" ] || disk=/dev/$(basename "$(readlink -f "/sys/class/block/${device##*/}/..")")
tries=0
until [ "$(lsblk -bdno SIZE "$disk")" -ge "$size" ]; do
	tries=$((tries + 1))
	if [ $tries -gt 60 ]; then
		echo "$disk still has $(lsblk -bdno SIZE "$disk") bytes of $size" >&2
		exit 1
	fi
	sleep 0.5
done
if [ -e "$number" ]; then
	if command -v growpart >/dev/null; then
		# Status 1: it already has the size of the disk.
		growpart "$disk" "$(cat "$number")" || [ $? = 1 ]
	else
		# Up to the end of the disk, as growpart does.
		echo ',+' | sfdisk --quiet --no-reread --force -N "$(cat "$number")" "$disk"
		partx --update --nr "$(cat "$number")" "$disk"
	fi
fi
case $(findmnt -no FSTYPE "$root") in
ext2 | ext3 | ext4) resize2fs "$device" ;;
xfs) xfs_growfs "$root" ;;
btrfs) btrfs filesystem resize max "$root" ;;
*)
	echo "the file system $(findmnt -no FSTYPE "$root") on $device is not one that this grows: do it by hand" >&2
	exit 1
	;;
esac
