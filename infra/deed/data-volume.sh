# Makes a volume the data volume of this machine: volume id, mount point, UUID of the file system that
# is known to be on it or "", UUID for a new file system, unit, content of the unit, program, content
# of the program, unit that needs the volume... Prints the UUID of the file system.
#
# A file system is made only on a volume with no signature at all, and only if none is known to be on
# it. It gets the UUID that was given: so it is recognised if this ended before anybody noted it.
set -eu
PATH=$PATH:/usr/sbin:/sbin
volume=$1 point=$2 known=$3 new=$4 unit=$5 text=$6 program=$7 code=$8
shift 8
device=/dev/disk/by-id/nvme-Amazon_Elastic_Block_Store_vol${volume#vol-}

failed() {
	echo "$1" >&2
	exit 1
}
mounted() { findmnt -rno SOURCE --mountpoint "$1" 2>/dev/null | tail -n 1; }

exec 9>/run/k8s-data-volume.lock
flock -w 300 9 || failed "another apply has been busy with the data volume for 5 minutes"

tries=0
until [ -e "$device" ]; do
	tries=$((tries + 1))
	[ $tries -le 240 ] || failed "$device does not appear: the volume is attached, and this machine does not show it; only instance types of the Nitro System name volumes so"
	sleep 0.5
done
disk=$(readlink -f "$device")

# Status 2: nothing was found, or nothing could be read. Any other than 0 says that it could not be
# read.
found=0
blkid -p -o export "$disk" >/run/k8s-data-volume.found || found=$?
case $found in
0) ;;
2)
	head -c 1048576 "$disk" >/dev/null || failed "$disk cannot be read"
	: >/run/k8s-data-volume.found
	;;
*) failed "$disk cannot be read (blkid: status $found)" ;;
esac
uuid=$(sed -n 's/^UUID=//p' /run/k8s-data-volume.found)
type=$(sed -n 's/^TYPE=//p; s/^PTTYPE=/partition table /p' /run/k8s-data-volume.found | tail -n 1)
rm -f /run/k8s-data-volume.found
a=a
case $type in [aeiou]*) a=an ;; esac

if [ -n "$known" ]; then
	[ "$uuid" = "$known" ] || failed "the tag of $volume says that it has the file system $known, and it has ${type:-none}${uuid:+ with UUID $uuid}: nothing on it was changed; find out whose data these are, and correct the tag or use another volume"
elif [ $found = 0 ] && [ "$uuid" != "$new" ]; then
	failed "$volume has $a $type${uuid:+ with UUID $uuid} that was not made here: nothing on it was changed; the guide on data volumes says when an ext4 file system may be used; to lose what is there, run wipefs -a $disk here"
fi
if [ $found = 0 ] && [ "$type" != ext4 ]; then failed "$volume has $a $type, and a data volume has ext4: nothing on it was changed"; fi

# What is at the mount point would be hidden. Another mount there is none of our business while it is
# empty.
if [ "$(mounted "$point" | xargs -r readlink -f)" != "$disk" ] && [ -d "$point" ] && [ -n "$(ls -A "$point")" ]; then
	failed "$point has data on the root disk, which the volume would hide: the volume is attached and not mounted; replace the machine (-replace), or stop what uses $point, move the data away and apply again; in both cases an etcd member leaves its cluster and joins anew"
fi

# A directory of the volume that is mounted by itself (bind) is another matter.
for at in $(findmnt -rno FSROOT,TARGET --source "$disk" 2>/dev/null | sed -n 's|^/ ||p'); do
	[ "$at" = "$point" ] || umount "$at" || failed "$volume is mounted at $at and in use there: stop what uses it, unmount it, and apply again"
done
if [ $found = 2 ]; then
	uuid=$new
	mkfs.ext4 -q -F -m 1 -U "$uuid" -L k8s-data "$disk" >&2 || failed "no file system could be made on $disk"
	sync
fi

mkdir -p "${program%/*}"
put() {
	[ "$(cat "$2" 2>/dev/null; echo .)" = "$1
." ] && [ "$(stat -c %a "$2")" = "$3" ] && return
	printf '%s\n' "$1" >"$2.new"
	chmod "$3" "$2.new"
	sync "$2.new"
	mv "$2.new" "$2"
	sync "${2%/*}"
}
put "$code" "$program" 755
put "$text" "/etc/systemd/system/$unit" 644
# What needs the volume starts after the unit, and not without it. systemd forgets the units of an
# earlier version of this.
for needy in "$@"; do
	mkdir -p "/etc/systemd/system/$needy.requires"
	ln -sf "../$unit" "/etc/systemd/system/$needy.requires/$unit"
done
mkdir -p /etc/systemd/system/multi-user.target.wants
ln -sf "../$unit" "/etc/systemd/system/multi-user.target.wants/$unit"
for needy in "$@"; do
	sync "/etc/systemd/system/$needy.requires"
done
sync /etc/systemd/system /etc/systemd/system/multi-user.target.wants
systemctl daemon-reload
systemctl start "$unit" || failed "$(journalctl _SYSTEMD_UNIT="$unit" -n 1 -o cat --no-pager 2>/dev/null || systemctl status "$unit" 2>&1 | tail -n 3)"
[ "$(mounted "$point" | xargs -r readlink -f)" = "$disk" ] || failed "$unit has ended, and $volume is not mounted at $point"
resize2fs "$disk" >&2 ||
	failed "the file system of $volume does not grow while it is mounted: it grows when it is mounted again; stop what uses it, unmount it, and start that again"
# etcd wonders about it at every start, and e2fsck makes another when it needs one.
[ $found = 0 ] || rmdir "$point/lost+found" || :
echo "$uuid"
