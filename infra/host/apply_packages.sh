# Functions that install packages of the distribution. On a machine that has just booted,
# apt-daily and unattended-upgrades hold the locks of apt and dpkg.
# shellcheck disable=SC2154 # apply.sh has its deadline

archive_patience=180 # seconds for an archive that fails to serve again, without those for locks
late_at=

install_packages() {
	packages=$*
	await_staged_packages
	progress "installing packages $*"
	if command -v apt-get >/dev/null; then
		apt_install "$@"
	elif command -v dnf >/dev/null; then
		out=$(dnf -y --setopt=install_weak_deps=False install -- "$@" </dev/null 2>&1 9>&-) || die packages "$packages" '' "$out"
	else
		die packages "$packages" '' "neither apt-get nor dnf is on the machine"
	fi
}

# await_staged_packages waits while a staging fetches packages.
await_staged_packages() {
	[ -e "$run/packages" ] || return 0
	! flock -n "$run/packages" true || return 0
	hurry
	progress "waiting for packages that are being downloaded ahead"
	remaining
	[ "$left" -le "$archive_patience" ] || left=$archive_patience
	flock -w "$left" "$run/packages" true
	:
}

# patience seconds: late succeeds after that many seconds, or at the deadline.
patience() {
	late_at=$(($(date +%s) + $1))
	[ "$late_at" -le "$deadline" ] || late_at=$deadline
}

late() { [ "$(date +%s)" -ge "$late_at" ]; }

# --- apt ------------------------------------------------------------------------

# apt_install first tries without fetching the lists. A new machine has none, and an
# older one's may name packages that the archive no longer has. An interrupted dpkg
# is completed first, because apt refuses to work until then.
apt_install() {
	lists=
	late_at=
	apt_gets "$@" && return
	progress "fetching the package lists"
	said=
	while :; do
		unlocked dpkg --configure -a --force-confdef --force-confold
		lists=
		apt_update || lists=$out
		apt_gets "$@" && return
		passing=$(complaint | passing)
		[ -n "$passing" ] || break
		[ -n "$late_at" ] || patience $archive_patience
		! late || die packages "$packages" '' "$(complaint)"
		[ "$passing" = "$said" ] || progress "waiting for the package archive: $passing"
		said=$passing
		sleep 2
	done
	apt_get --fix-broken install && apt_gets "$@" && return
	packages_there "$@" || die packages "$packages" '' "$(complaint)"
	progress "packages $* are installed, although apt-get fails: $(complaint | head -n 1)" # of another package
}

# apt_update fetches the lists of binary packages. Those of source packages and
# translations are not needed; those that others fetched are kept.
apt_update() {
	apt_get -o Acquire::IndexTargets::deb-src::Sources::DefaultEnabled=false -o Acquire::Languages=none \
		-o APT::Get::List-Cleanup=false update
}

# apt_gets name...: installs packages, none of which is fully installed. Without
# --reinstall, apt-get takes a package that dpkg was unpacking when it was killed for
# installed, and reports success.
apt_gets() { apt_get --reinstall install -- "$@" && packages_there "$@"; }

# apt_get leaves apt-get's output in out. apt waits only for dpkg's locks, and without
# output, so it is told not to wait. By default apt-get update succeeds when an
# archive does not answer, after half a minute for each of its files.
apt_get() {
	unlocked apt-get -q -y --no-install-recommends -o DPkg::Lock::Timeout=0 -o DPkg::Use-Pty=0 \
		-o APT::Update::Error-Mode=any -o Acquire::Retries=0 -o Acquire::http::Timeout=10 -o Acquire::https::Timeout=10 \
		-o Dpkg::Options::=--force-confdef -o Dpkg::Options::=--force-confold "$@"
}

# unlocked command...: runs it, again and again while another process holds a lock
# of apt or dpkg. Its output is in out. The time spent waiting does not count against the
# archive.
unlocked() {
	waiting=
	while :; do
		asked=$(date +%s)
		remaining
		out=$(DEBIAN_FRONTEND=noninteractive APT_LISTCHANGES_FRONTEND=none NEEDRESTART_SUSPEND=1 \
			timeout "$left" "$@" 2>&1 </dev/null 9>&- 7>&-) && return
		[ $? -ne 124 ] || die packages "$packages" '' "$1 is not done after $left s; the last it said: $(printf '%s\n' "$out" | tail -n 3)"
		case $out in
		*'Could not get lock '*) taken=${out#*Could not get lock } taken=${taken%%[. ][ -]*} ;;
		*' lock was locked by another process '*) taken="dpkg's lock" ;;
		*) return 1 ;;
		esac
		taken="$(holder) holds $taken"
		[ "$(date +%s)" -lt "$deadline" ] || die packages "$packages" '' "$taken, still after ${limit} s"
		[ "$taken" = "$waiting" ] || progress "waiting: $taken"
		waiting=$taken
		sleep 1
		[ -z "$late_at" ] || late_at=$((late_at + $(date +%s) - asked))
	done
}

# holder prints which process holds the lock that out names.
holder() {
	case $out in
	*'held by process '*) pid=${out#*held by process } ;;
	*' with pid '*) pid=${out#* with pid } ;;
	*)
		echo 'another process'
		return
		;;
	esac
	pid=${pid%%[!0-9]*}
	owner=$(tail -n 1 "/proc/$pid/cgroup" 2>/dev/null)
	owner=${owner##*/} # the unit
	printf '%s (process %s%s)' "$(cat "/proc/$pid/comm" 2>/dev/null || echo 'a program')" "$pid" "${owner:+ of $owner}"
}

# complaint prints the errors in the output, or its end if none is marked.
complaint() {
	marked=$(printf '%s\n%s\n' "$lists" "$out" | while IFS= read -r line; do
		case $line in
		'E: '* | 'Error: '*) printf '%s\n' "${line#*: }" ;;
		'dpkg: error'* | *' script subprocess returned '*) printf '%s\n' "$line" ;;
		esac
	done | head -n 8)
	if [ -n "$marked" ]; then
		printf '%s\n' "$marked"
	else
		printf '%s\n' "$out" | tail -n 8
	fi
}

# passing prints the first temporary error: an archive that does not answer, has a
# fault or is just being updated, but not one that refuses or lacks a file.
passing() {
	while IFS= read -r line; do
		case $line in
		*'  40'[0-9]'  '* | *'  410  '*) ;;
		'Failed to fetch '*)
			printf '%s' "$line"
			return
			;;
		esac
	done
}

packages_there() { [ "$(printf '%s\n' "$@" | observe_packages | tr -cd '\000' | wc -c)" -eq $# ]; }
