# Mounts the data volume that a unit of this machine needs, if there is one: unit of the volume, unit that
# needs it. Prints the unit of the volume then.
unit=$1 needy=$2
[ -e "/etc/systemd/system/$needy.requires/$unit" ] || exit 0
systemctl start "$unit" || {
	journalctl _SYSTEMD_UNIT="$unit" -n 1 -o cat --no-pager >&2 # what it said, and not what systemd says of it
	exit 1
}
echo "$unit"
