# Fetches ahead, on a machine that boots, what its roles will install: programs and
# packages. It installs and starts nothing. A role finds a verified download, or waits
# for the one under way, or fetches it itself: what fails here is only reported.
# shellcheck disable=SC2154,SC2034 # apply_download.sh says what is set

stage_limit=900         # seconds
stage_room=$((2 << 20)) # KiB that must be free before anything is fetched
: "${stage_looks:=20}"  # at the room, three seconds apart
: "${stage_rounds:=5}"  # in which a server is asked that does not answer

progress() { printf '%s\n' "$*"; }

# All processes stay in one group, to which hurry in apply.sh gives another priority.
timeout() { command timeout --foreground "$@"; }

# die step target unit detail
die() {
	printf '%s %s: %s\n' "$1" "$2" "$4"
	exit 0
}

# stage_begin what: ends everything if there is not enough room.
stage_begin() {
	what=$1
	limit=$stage_limit
	deadline=$(($(date +%s) + limit))
	command -v flock >/dev/null || die stage '' '' 'flock is not on the machine'
	mkdir -p -- "$run/downloads" "$cache" || die stage '' '' 'cannot create directories'
	await_room
	# An apply may want to know which processes these are (hurry in apply.sh).
	echo "$$ $(started $$)" >"$run/ahead.$what"
	# What no role takes is removed after a day.
	mkdir -p -- "$tmpfiles" && printf 'e %s - - - 1d\n' "$cache" >"$tmpfiles/k8s-from-scratch.conf"
}

# await_room waits for a minute until there is room: cloud-init makes the file system as
# large as the volume after it has started the staging. Then it ends everything.
await_room() {
	look=1
	until df -P -k -- "$cache" | {
		read -r _
		read -r _ _ _ free _
		[ "$free" -ge "$stage_room" ]
	}; do
		[ "$look" -lt "$stage_looks" ] || die stage '' '' "less than $stage_room KiB are free on $cache"
		look=$((look + 1))
		sleep 3
	done
}

# stage_programs calls "programs", which calls stage_program for each download, until all
# are there.
stage_programs() {
	round=1
	hopeless= # digests of what the servers do not have
	while :; do
		again=
		programs
		[ "$again" ] && [ "$round" -lt "$stage_rounds" ] || return 0
		round=$((round + 1))
		sleep 3
	done
}

# stage_program digest url name member...: one at a time, so that the first is there
# early. A download that a role has begun or finished is the role's. What has a receipt
# is installed already: by a role, or in the machine's image.
stage_program() {
	digest=$1 url=$2 name=$3
	shift 3
	[ ! -e "$lib/receipts/$digest" ] || return 0
	exec 8<>"$run/downloads/$digest"
	if ! flock -n 8 || [ -s "$run/downloads/$digest" ] || [ "${hopeless#*"$digest"}" != "$hopeless" ]; then
		exec 8>&-
		return
	fi
	if get "$digest" "$url"; then
		if [ $# -gt 0 ]; then extract "$digest" "$@" || progress "unpack $name: $out"; fi
		progress "$name is there"
	else
		progress "$name: $result"
		case $result in
		failed*'curl: (23)'*) die stage "$name" '' 'no room' ;;
		failed*'error: 4'* | mismatch*) hopeless="$hopeless $digest" ;; # the server has answered
		*) again=1 ;;
		esac
	fi
	exec 8>&-
}

# stage_packages name...: of those that are not installed.
stage_packages() {
	packages=
	for name; do
		packages_there "$name" || packages="$packages $name"
	done
	[ "$packages" ] || return 0
	exec 7>"$run/packages"
	flock -n 7 || return 0
	# shellcheck disable=SC2086 # names
	if command -v apt-get >/dev/null; then
		lists=
		if ! apt_update || ! apt_get --download-only --reinstall install -- $packages; then progress "packages$packages: $(complaint)"; fi
	elif command -v dnf >/dev/null; then
		dnf -y --setopt=install_weak_deps=False --downloadonly install -- $packages </dev/null 7>&-
	fi
	:
}
