# Functions that remove things from the machine. They continue after a failure and
# report what could not be removed. What does not exist is no failure.
# shellcheck disable=SC2154 # apply.sh has its variables

ended= # set by end_units

complain() { frame "left $*"; }

# unless_claimed path claim: ends everything, successfully, if the file has another claim.
unless_claimed() {
	[ -e "$1" ] || return 0
	claim=$(cat -- "$1" 2>&1) || die remove "$1" '' "$claim"
	case $claim in '' | "$2") return ;; esac
	frame claimed
	exit 0
}

# first script: runs it for at most six minutes: systemd gives each unit 90 seconds before
# it kills it. What it leaves is found later.
first() { timeout 360 sh -c "$1" >/dev/null 2>&1; }

# remove_units name...: in the order given, which does not matter after end_units.
remove_units() {
	systemctl --no-reload disable -- "$@" >/dev/null 2>&1
	remaining
	if [ -z "$ended" ] || ! timeout "$left" systemctl stop -- "$@" >/dev/null 2>&1; then
		for unit; do stop_unit "$unit"; done
	fi
	for unit; do
		shift
		set -- "$@" "$run/pending/restart.$unit" "$run/pending/reload.$unit"
	done
	rm -f -- "$@"
}

# remove_known_units name...: one by one, those that are there. systemctl disables none of several if one is
# missing.
remove_known_units() {
	for known; do
		! is_known "$known" || remove_units "$known"
	done
}

stop_unit() {
	progress "stopping $1"
	remaining
	timeout "$left" systemctl stop -- "$1" >/dev/null 2>&1
	case $? in
	0 | 5) ;; # systemctl(1): 5 is a unit that is not loaded
	*) systemctl kill -s KILL -- "$1" >/dev/null 2>&1 || ! is_known "$1" || complain "unit $1: cannot be stopped" ;;
	esac
}

# is_known unit: whether systemd knows it.
is_known() {
	case $(systemctl show --no-pager -p LoadState -- "$1" 2>/dev/null) in *=not-found | '') return 1 ;; esac
}

# end_units name...: at once, not gracefully. The stop jobs keep them from restarting.
end_units() {
	systemctl stop --no-block -- "$@" >/dev/null 2>&1
	systemctl kill -s KILL -- "$@" >/dev/null 2>&1
	ended=1
}

remove_files() {
	out=$(rm -f -- "$@" 2>&1) || complain "$out"
}

# mounts path sets below to the mount points below path, a line each, in an order in
# which they can be unmounted, and at to path if something is mounted there.
mounts() {
	below=
	at=
	while read -r _ point _; do
		case $point in *\\*) point=$(printf '%b' "$(printf '%s' "$point" | sed 's/\\/\\0/g')") ;; esac # \040 is a space
		case $point in
		"$1") at=$1 ;;
		"$1"/*) below=$point$newline$below ;; # what was mounted last comes first
		esac
	done </proc/self/mounts
}

# remove_directory path: with everything in it, except what is mounted there: volumes of
# pods are never deleted.
remove_directory() {
	if [ -L "$1" ] || [ ! -d "$1" ]; then
		if [ -L "$1" ] || [ -e "$1" ]; then remove_files "$1"; fi
		return
	fi
	mounts "$1"
	if [ -n "$below" ]; then
		printf %s "$below" | while IFS= read -r point; do
			umount -- "$point" 2>/dev/null || umount -l -- "$point" 2>/dev/null
		done
		mounts "$1"
	fi
	if [ -n "$below" ]; then
		complain "directory $1: something is mounted in it: $below"
		return
	fi
	if [ -n "$at" ]; then
		# A mount point cannot be removed, but it can be emptied. lost+found is the file system's own.
		find "$1" -xdev -mindepth 1 -maxdepth 1 ! -name lost+found -exec rm -rf --one-file-system -- {} + 2>/dev/null
		[ -z "$(find "$1" -mindepth 1 -maxdepth 1 ! -name lost+found 2>&1)" ] || complain "directory $1: cannot be emptied"
		return
	fi
	rm -rf --one-file-system -- "$1" 2>/dev/null || [ ! -d "$1" ] || complain "directory $1: cannot be removed"
}

# forget digest...: deletes Apply's own files about downloads.
forget() {
	for digest; do
		shift
		set -- "$@" "$lib/receipts/$digest" "${cache:?}/$digest" "$cache/$digest.part" "$cache/$digest.unpacked" "$cache/$digest.unpacked.part"
	done
	rm -rf -- "$@"
}
