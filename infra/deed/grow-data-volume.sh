# Grows the mounted file system of a data volume to the size of the volume, once that has so many
# bytes: volume id, bytes. A volume that is not mounted grows when it is.
set -eu
PATH=$PATH:/usr/sbin:/sbin
volume=$1 size=$2
device=/dev/disk/by-id/nvme-Amazon_Elastic_Block_Store_vol${volume#vol-}
[ -e "$device" ] || exit 0
disk=$(readlink -f "$device")
[ -n "$(findmnt -rno TARGET --source "$disk")" ] || exit 0
tries=0
until [ "$(blockdev --getsize64 "$disk")" -ge "$size" ]; do
	tries=$((tries + 1))
	if [ $tries -gt 60 ]; then
		echo "$disk still has $(blockdev --getsize64 "$disk") bytes of $size" >&2
		exit 1
	fi
	sleep 0.5
done
resize2fs "$disk" >&2 || {
	echo "the file system of $volume does not grow while it is mounted: it grows when it is mounted again; stop what uses it, unmount it, and start that again" >&2
	exit 1
}
