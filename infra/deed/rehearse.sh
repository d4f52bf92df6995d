# Rehearses units: a directory of its own, and the prefix of its units' names. Calls of
# the functions follow this file: begin, unpack and rehearse for each unit, finish.
set -u
dir=$1
unit_prefix=$2
umask 022
trap '' PIPE
units=
unpacked=

# Remove the overlay first: the machine's own /etc is below it.
forget() {
	umount -l "$dir/etc" 2>/dev/null
	rm -rf --one-file-system "$dir"
	for program in $unpacked; do rm -f "$program"; done
	for unit in $units; do rm -f "/run/systemd/system/$unit_prefix$unit"; done
	systemctl daemon-reload
	for unit in $units; do systemctl reset-failed "$unit_prefix$unit" 2>/dev/null; done
}

# begin lays the new files, which arrive on standard input, over /etc. If that fails
# there is no rehearsal.
begin() {
	umount -l "$dir/etc" 2>/dev/null
	rm -rf --one-file-system "$dir"
	trap forget EXIT
	trap 'exit 1' HUP INT TERM
	mkdir -p "${dir%/*}" && chmod 700 "${dir%/*}" && mkdir "$dir" "$dir/etc" "$dir/new" "$dir/new/etc" || exit 1
	tar -xp -C "$dir/new" -f - || exit 1
	mount -t overlay overlay -o "ro,lowerdir=$dir/new/etc:/etc" "$dir/etc" || exit 1
}

# unpack takes a program out of its archive: archive, member, program. If that fails
# there is no such program to rehearse.
unpack() {
	unpacked="$unpacked $3"
	tar -xzOf "$1" -- "$2" >"$3" 2>/dev/null || tar -xzOf "$1" -- "./$2" >"$3" 2>/dev/null || rm -f "$3"
}

# rehearse takes a unit, the program it runs, and on standard input its file.
rehearse() {
	[ -e "$2" ] || return 0
	chmod u+x "$2"
	cat >"/run/systemd/system/$unit_prefix$1" || exit 1
	units="$units $1"
}

# finish runs all units at once and reports for each its name, its exit status and,
# on the lines below, its output.
finish() {
	systemctl daemon-reload
	set --
	for unit in $units; do set -- "$@" "$unit_prefix$unit"; done
	[ $# -eq 0 ] || systemctl start "$@" 2>/dev/null
	for unit in $units; do
		printf '%s %s\n' "$unit" "$(systemctl show --value --property=ExecMainStatus "$unit_prefix$unit")"
		tail -c 65536 "$dir/$unit.log"
		printf '\0'
	done
	exit 0
}
