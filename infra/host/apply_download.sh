# Functions that download, verify and unpack, for an apply and for a staging (stage.sh).
# In the directory cache a download is DIGEST.part until it is verified, then DIGEST;
# DIGEST.unpacked is what is in it. The file $run/downloads/DIGEST is the lock of all
# three. It also says what was done since the boot: "SIZE:TIME:INODE" of the verified
# download, " unpacked" behind it, or "used". Without it nothing in cache is trusted.
# The variable deadline (seconds since 1970) bounds all waits.
# shellcheck disable=SC2154,SC2034 # so are newline, cache and run; callers read result

# space target detail: how much is left where the step writes, if the detail says that
# there was not enough: free and all KiB, free inodes, device, mount point.
space() {
	case $2 in
	*'No space left'* | *'Disk quota'* | *'curl: (23)'*) ;;
	*) return ;;
	esac
	case $1 in
	/*) at=$1 ;;
	*) at=$cache ;;
	esac
	while [ ! -e "$at" ] && [ "$at" ]; do at=${at%/*}; done
	df -P -k -- "${at:-/}" 2>/dev/null | {
		read -r _
		read -r device blocks _ free _ mount
		inodes=$(df -P -i -- "$mount" 2>/dev/null | { read -r _; read -r _ _ _ n _; echo "$n"; })
		printf '%s %s %s %s %s' "$free" "$blocks" "${inodes:--}" "$device" "$mount"
	}
}

# remaining sets left to the seconds that remain, at least one.
remaining() {
	left=$((deadline - $(date +%s)))
	[ "$left" -gt 0 ] || left=1
}

# started pid: when the process started, in ticks since the boot (proc(5)). With it a
# pid that another process has by now is told apart.
started() { sed 's/.*) //' "/proc/$1/stat" 2>/dev/null | cut -d ' ' -f 20; }

# take_turn digest: waits until no other process is at work on the download. Descriptor 8
# has the lock, also in a curl or tar that outlives the shell, until it is closed.
take_turn() {
	exec 8<>"$run/downloads/$1"
	remaining
	! command -v flock >/dev/null || flock -w "$left" 8
}

identity() { stat -c '%s:%.9Y:%i' -- "$cache/$1" 2>/dev/null; }

# is_verified digest: whether the download is there and intact. It is not hashed again
# while it is the file that was hashed in this boot.
is_verified() {
	now=$(identity "$1") || return 1
	read -r seen _ <"$run/downloads/$1" || seen=
	[ "$seen" != "$now" ] || return 0
	got=$(sha256sum <"$cache/$1")
	[ "${got%% *}" = "$1" ] || return 1
	echo "$now" >"$run/downloads/$1"
}

# get digest url: downloads and verifies, unless that has been done. It takes up what an
# earlier attempt has left. The caller has the lock. It leaves in result: "ok";
# "mismatch DIGEST"; or "failed SPACE", and on the next lines why.
get() {
	part=$cache/$1.part
	if is_verified "$1"; then
		result=ok
		return
	fi
	rm -rf -- "${cache:?}/$1" "$cache/$1.unpacked"
	for _ in 1 2; do
		transfer "$2" || return
		got=$(sha256sum <"$part")
		got=${got%% *}
		if [ "$got" = "$1" ]; then
			if out=$(mv -f -- "$part" "$cache/$1" 2>&1) && identity "$1" >"$run/downloads/$1"; then
				result=ok
				return
			fi
			result="failed $(space '' "$out")$newline$out"
			return 1
		fi
		rm -f -- "$part"
		# The first part may have been that of another file.
		[ "$resumed" ] || break
	done
	result="mismatch $got"
	return 1
}

# transfer url: completes the file part, in three attempts. It sets resumed if there was
# something to complete.
transfer() {
	resumed=
	try=1
	while :; do
		remaining
		[ ! -s "$part" ] || resumed=1
		out=$(curl -fsSL -C - --connect-timeout 10 --speed-limit 1024 --speed-time 20 --max-time "$left" \
			-o "$part" -- "$1" 2>&1 </dev/null) && return
		case $out in
		*'error: 416'*) return 0 ;;         # nothing is missing
		*'curl: (33)'*) rm -f -- "$part" ;; # this server sends files as a whole only
		esac
		case $try$out in
		3* | *'curl: (23)'* | *'error: 401'* | *'error: 403'* | *'error: 404'* | *'error: 410'*)
			result="failed $(space '' "$out")$newline${out:-curl failed}"
			return 1
			;;
		esac
		try=$((try + 1))
		sleep 1
	done
}

# is_unpacked digest member...: whether the members were unpacked from the download in
# this boot.
is_unpacked() {
	read -r seen what <"$run/downloads/$1" || return
	[ "$what" = unpacked ] && [ "$seen" = "$(identity "$1")" ] || return
	into=$cache/$1.unpacked
	shift
	for member; do
		[ -f "$into/$member" ] || return
	done
}

# extract digest member...: unpacks them from the verified download. The directory gets
# its name when it is complete. The caller has the lock.
extract() {
	archive=$cache/$1
	digest=$1
	new=$archive.unpacked.part
	shift
	out=$(rm -rf -- "$archive.unpacked" "$new" && mkdir -- "$new" 2>&1) || return
	if ! tar -xzmof "$archive" -C "$new" -- "$@" 2>/dev/null; then
		for member; do
			shift
			set -- "$@" "./$member"
		done
		out=$(tar -xzmof "$archive" -C "$new" -- "$@" 2>&1) || return
	fi
	out=$(mv -T -- "$new" "$archive.unpacked" 2>&1) && echo "$(identity "$digest") unpacked" >"$run/downloads/$digest"
}
