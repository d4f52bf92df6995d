# Functions that print what is on the machine, as NUL-terminated pairs: a path
# and what was found there. They change nothing; what is not there is left out.
# The script ends with an error where something is there and cannot be read.

# read_files pattern...: the content of files.
read_files() {
	for pattern; do
		for path in $pattern; do
			[ ! -f "$path" ] || { printf '%s\0' "$path"; cat -- "$path" || exit 1; printf '\0'; }
		done
	done
}

# read_head bytes pattern: the first bytes of the first file, in base64.
read_head() {
	for path in $2; do
		[ ! -f "$path" ] || { printf '%s\0' "$path"; head -c "$1" -- "$path" | base64 -w 0 || exit 1; printf '\0'; return; }
	done
}

# read_versions path...: the output of programs' --version.
read_versions() {
	for path; do
		[ ! -x "$path" ] || { printf '%s\0' "$path"; "$path" --version 2>&1 </dev/null || :; printf '\0'; }
	done
}

# read_named path...: the content of the files that a file names, for kubeconfigs.
read_named() {
	for path; do
		[ ! -f "$path" ] || while read -r key value; do
			case $key in certificate-authority: | client-certificate: | client-key:) read_files "$value" ;; esac
		done <"$path"
	done
}

# read_room path: KiB that are free for it on its file system, and its own bytes.
read_room() {
	at=$1
	while [ ! -e "$at" ] && [ "$at" ]; do at=${at%/*}; done
	free=$(df -P -k -- "${at:-/}" 2>/dev/null | { read -r _ && read -r _ _ _ free _ && echo "$free"; })
	printf '%s\0%s %s\0' "$1" "$free" "$(stat -c %s -- "$1" 2>/dev/null || echo 0)"
}

# active unit: whether it is active. If systemd does not answer, the script ends.
active() {
	systemctl is-active --quiet "$1" && return 0
	case $? in 3 | 4) return 1 ;; esac
	echo "systemctl cannot tell whether $1 is active" >&2
	exit 1
}

# noted unit file: whether the file lists the unit and it is enabled.
noted() {
	grep -qxF -- "$1" "$2" 2>/dev/null && systemctl is-enabled --quiet "$1" 2>/dev/null
}
