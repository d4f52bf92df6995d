# Functions that remove things from the machine. They continue after a failure and
# report what could not be removed. What does not exist is no failure.
# shellcheck disable=SC2154 # apply.sh has its variables

complain() { frame "left $*"; }

# remove_units name...: in the order given.
remove_units() {
	systemctl --no-reload disable -- "$@" >/dev/null 2>&1
	for unit; do
		progress "stopping $unit"
		case $(systemctl show --no-pager -p LoadState -- "$unit" 2>/dev/null) in
		*=not-found | '') continue ;;
		esac
		remaining
		timeout "$left" systemctl stop -- "$unit" >/dev/null 2>&1 ||
			systemctl kill -s KILL -- "$unit" >/dev/null 2>&1 || complain "unit $unit: cannot be stopped"
		rm -f -- "$run/pending/restart.$unit" "$run/pending/reload.$unit"
	done
}

remove_files() {
	out=$(rm -f -- "$@" 2>&1) || complain "$out"
}

# mounts_below prints the mount points below $1, deepest first.
mounts_below() {
	while read -r _ point _; do
		point=$(printf '%b' "$point")
		case $point in "$1"/*) printf '%s\n' "$point" ;; esac
	done </proc/self/mounts | sort -r
}

# remove_directory path: with everything in it, except what is mounted there: volumes of
# pods are never deleted.
remove_directory() {
	if [ -L "$1" ] || [ ! -d "$1" ]; then
		remove_files "$1"
		return
	fi
	mounts_below "$1" | while IFS= read -r point; do
		umount -- "$point" 2>/dev/null || umount -l -- "$point" 2>/dev/null
	done
	still=$(mounts_below "$1")
	if [ -n "$still" ]; then
		complain "directory $1: something is mounted in it: $still"
		return
	fi
	if mounted_at "$1"; then
		# A mount point cannot be removed, but it can be emptied. lost+found is the file system's own.
		find "$1" -xdev -mindepth 1 -maxdepth 1 ! -name lost+found -exec rm -rf --one-file-system -- {} + 2>/dev/null
		[ -z "$(find "$1" -mindepth 1 -maxdepth 1 ! -name lost+found 2>&1)" ] || complain "directory $1: cannot be emptied"
		return
	fi
	rm -rf --one-file-system -- "$1" 2>/dev/null || [ ! -d "$1" ] || complain "directory $1: cannot be removed"
}

# mounted_at path: whether something is mounted there.
mounted_at() {
	while read -r _ point _; do
		[ "$(printf '%b' "$point")" != "$1" ] || return 0
	done </proc/self/mounts
	return 1
}

# forget digest...: deletes Apply's own files about downloads.
forget() {
	for digest; do rm -rf -- "$lib/receipts/$digest" "${cache:?}/$digest" "$cache/$digest".*; done
}
