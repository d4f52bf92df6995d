# Prints how a data volume is used on this machine, and changes nothing: volume id, mount point, unit,
# program, unit that needs the volume... Each line is a fact: "device yes", "uuid ...", "mounted
# SOURCE", "elsewhere DIRECTORY", "file PATH SHA256", "unlinked UNIT", "small yes".
PATH=$PATH:/usr/sbin:/sbin
volume=$1 point=$2 unit=$3 program=$4
shift 4
device=/dev/disk/by-id/nvme-Amazon_Elastic_Block_Store_vol${volume#vol-}
there=$(findmnt -rno SOURCE --mountpoint "$point" | tail -n 1)
if [ -e "$device" ]; then
	echo "device yes"
	disk=$(readlink -f "$device")
	echo "uuid $(blkid -p -s UUID -o value "$disk")"
	if [ -n "$there" ] && [ "$(readlink -f "$there")" = "$disk" ]; then there=$volume; fi
	for at in $(findmnt -rno FSROOT,TARGET --source "$disk" | sed -n 's|^/ ||p'); do
		[ "$at" = "$point" ] || echo "elsewhere $at"
	done
	blocks=$(dumpe2fs -h "$disk" 2>/dev/null | awk '/^Block count:/ { n = $3 } /^Block size:/ { s = $3 } END { if (n) printf "%.0f", n * s }')
	# The last blocks of a disk may be too few for a group.
	[ -z "$blocks" ] || [ $((blocks + 134217728)) -gt "$(blockdev --getsize64 "$disk")" ] || echo "small yes"
fi
# Another mount that is empty is like none.
if [ "$there" != "$volume" ] && [ -z "$(ls -A "$point" 2>/dev/null)" ]; then there=; fi
echo "mounted $there"
for file in "$program" "/etc/systemd/system/$unit"; do
	[ ! -f "$file" ] || echo "file $file $(sha256sum <"$file" | cut -d ' ' -f 1)"
done
for needy in "$@"; do
	[ -e "/etc/systemd/system/$needy.requires/$unit" ] || echo "unlinked $needy"
done
[ -e "/etc/systemd/system/multi-user.target.wants/$unit" ] || echo "unlinked multi-user.target"
exit 0
