# Functions that change the machine, one kind of thing each. They answer in the
# frames of observe.sh. Every file is complete, on the disk, and has its owner and mode
# before it gets its name, and the names are on the disk before a unit starts. After an
# interruption at any moment, a power cut too, running this again converges.
# The variable limit (seconds from now) bounds all waits together.
# shellcheck disable=SC2154,SC2034 # so are newline, lib, cache and run; others read deadline

progress() { frame "progress $*"; }

# die step target unit detail: ends everything. The steps are those of step.go.
die() { fail "$@" "$(space "$2" "$4")"; }

# fail step target unit detail space: die for which what is left is known already.
fail() {
	printf 'failed %s\n%s\n%s\n%s\n%s\000' "$1" "$2" "$3" "$5" "$4"
	exit 1
}

begin() {
	frame begin # ends whatever a login shell may have printed
	deadline=$(($(date +%s) + limit))
	downloads=
	placed=
	restorecon=$(command -v restorecon)
	mkdir -p -- "$run/pending" "$run/downloads" "$lib/receipts" "$cache" || die prepare '' '' "cannot create directories"
	# Uploads stay in memory, readable only by root, until they get their names.
	since=$(started $$)
	[ "$since" ] || die prepare '' '' "interrupted"
	stage=$(mktemp -d "$run/staging.$$.$since.XXXXXX") || die prepare '' '' "cannot create a staging directory"
	trap 'rm -rf -- "$stage"; forsake; [ -z "$downloads" ] || kill $downloads 2>/dev/null' EXIT
	trap 'exit 143' HUP INT TERM PIPE
}

# receive unpacks the upload. The file "end" is the last in the archive, because tar
# accepts an archive that stops between two files.
receive() {
	out=$(tar -xpmof - -C "$stage" 2>&1) || die receive '' '' "$out"
	[ -e "$stage/end" ] || die receive '' '' 'it is incomplete'
}

# lock waits for other runs on this machine to end. It comes after receive, so the
# wait does not need the caller's connection.
lock() {
	exec 9>"$run/lock"
	remaining
	! command -v flock >/dev/null || flock -w "$left" 9 ||
		die lock '' '' "it is still at work after $left s"
	for dir in "$run"/staging.*; do
		owner=${dir#"$run/staging."}
		since=${owner#*.}
		since=${since%%.*}
		if [ ! "$since" ] || [ "$(started "${owner%%.*}")" != "$since" ]; then rm -rf -- "$dir"; fi
	done
	hurry
	# Others may be at work on downloads of theirs. What nobody wants for a day is left over.
	find "$cache" -mindepth 1 -maxdepth 1 -mmin +1440 -exec rm -rf -- {} + 2>/dev/null
}

# hurry ends the low priority of a staging: from now on something waits for it.
hurry() {
	for file in "$run"/ahead.*; do
		[ -e "$file" ] || continue
		read -r pid since <"$file"
		[ "$(started "$pid")" != "$since" ] || renice -n 0 -g "$pid" >/dev/null 2>&1
		rm -f -- "$file"
	done
}

# --- kernel -------------------------------------------------------------------

load_module() {
	has_module "$1" && return
	out=$(modprobe -- "$1" 2>&1) && has_module "$1" && return
	die module "$1" '' "${out:-the kernel does not show it afterwards}"
}

# set_sysctl path value
set_sysctl() {
	out=$({ printf '%s\n' "$2" >"/proc/sys/$1"; } 2>&1) || die sysctl "$1" '' "$out"
}

# --- files --------------------------------------------------------------------

# room makes sure that path can get a new file: its directory exists, and no
# directory is in its place. A directory with content is moved aside, not deleted.
room() {
	dir=${1%/*}
	[ -d "$dir/" ] || (umask 022 && mkdir -p -- "$dir/") || die create-directory "$dir" '' "cannot create it"
	if [ -d "$1" ] && [ ! -L "$1" ] && ! rmdir -- "$1" 2>/dev/null; then
		aside "$1"
	fi
}

aside() {
	progress "moving $1 aside"
	out=$(mv -T -- "$1" "$1.displaced.$(date +%s)" 2>&1) || die move-aside "$1" '' "$out"
}

# directory mode owner:group path
directory() {
	if [ ! -d "$3" ]; then
		if [ -e "$3" ] || [ -L "$3" ]; then aside "$3"; fi
		parent=${3%/*}
		[ -d "$parent/" ] || (umask 022 && mkdir -p -- "$parent/")
		out=$(mkdir -m 0700 -- "$3" 2>&1) || die create-directory "$3" '' "$out"
	fi
	attributes "$@"
}

# attributes mode owner:group path
attributes() {
	out=$(chmod -- "$1" "$3" 2>&1 && chown -- "$2" "$3" 2>&1) || die attributes "$3" '' "$out"
}

# beside path: sets new to the name that a new file has until it gets path.
beside() { new=${1%/*}/.${1##*/}.k8s-new; }

# place file path moves a finished file, possibly from another file system, beside path.
place() {
	room "$2"
	beside "$2"
	placed="$placed$2$newline"
	out=$(mv -fT -- "$1" "$new" 2>&1) || die write "$2" '' "$out"
}

# settle gives the placed files their names, once their content is on the disk: after a
# power cut the name could otherwise be that of an empty file.
settle() {
	[ "$placed" ] || return 0
	set -f
	IFS=$newline
	# shellcheck disable=SC2086 # a line each
	set -- $placed
	unset IFS
	set +f
	for path; do
		beside "$path"
		set -- "$@" "$new"
		shift
	done
	out=$(sync -- "$@" 2>&1) || die write "${1%/*}" '' "$out"
	for new; do
		path=${new##*/.}
		path=${new%/*}/${path%.k8s-new}
		out=$(mv -fT -- "$new" "$path" 2>&1) || die write "$path" '' "$out"
		[ -z "$restorecon" ] || "$restorecon" -F -- "$path" 2>/dev/null
	done
	placed=
}

# forsake removes what was placed and did not get its name.
forsake() {
	printf %s "$placed" | while IFS= read -r path; do
		beside "$path"
		rm -f -- "$new"
	done
}

# durable directory...: what was renamed, made and removed there is on the disk.
durable() {
	for path; do
		shift
		[ ! -d "$path" ] || set -- "$@" "$path"
	done
	[ $# -eq 0 ] || out=$(sync -- "$@" 2>&1) || die write "$1" '' "$out"
}

# put name owner:group path: installs the staged file name, which has its mode already,
# with the next settle.
put() {
	if [ "$2" != root:root ]; then
		out=$(chown -- "$2" "$stage/$1" 2>&1) || die write "$3" '' "$out"
	fi
	place "$stage/$1" "$3"
}

# drop path: removes a file.
drop() { out=$(rm -f -- "$1" 2>&1) || die drop "$1" '' "$out"; }

# tidy directory...: removes those that are empty.
tidy() { rmdir -- "$@" 2>/dev/null || :; }

# expel path dir: removes what is not wanted below dir, and the directories that are then empty.
expel() {
	if [ -d "$1" ] && [ ! -L "$1" ]; then rmdir -- "$1" 2>/dev/null; else out=$(rm -f -- "$1" 2>&1) || die drop "$1" '' "$out"; fi
	above=${1%/*}
	while [ "$above" != "$2" ] && rmdir -- "$above" 2>/dev/null; do above=${above%/*}; done
}

# --- downloads ----------------------------------------------------------------

# download digest url: runs in the background and leaves its result in the staging
# directory.
download() {
	if take_turn "$1"; then
		get "$1" "$2" || rm -f -- "$cache/$1.part"
	else
		result="failed ${newline}another process has been at work on it for $left s"
	fi
	printf '%s\n' "$result" >"$stage/$1"
}

# fetch digest url name: starts a download.
fetch() {
	[ -f "$cache/$1" ] || progress "downloading $3"
	download "$1" "$2" &
	downloads="$downloads $!"
}

# fetched waits for all downloads.
fetched() {
	wait
	downloads=
}

# downloaded digest: ends everything unless the verified download is there.
downloaded() {
	result="failed ${newline}the download ended without a result"
	[ ! -r "$stage/$1" ] || result=$(cat "$stage/$1")
	case $result in
	ok) ;;
	mismatch*)
		frame "mismatch $1 ${result#mismatch }"
		exit 1
		;;
	*)
		first=${result%%"$newline"*}
		fail download "$1" '' "${result#*"$newline"}" "${first#failed }"
		;;
	esac
}

# install_program file digest source path: "file" is verified and becomes path.
install_program() {
	out=$(chmod 0755 -- "$1" 2>&1 && chown root:root -- "$1" 2>&1) || die install "$4" '' "$out"
	place "$1" "$4"
	settle
	line=$(stat -c '%s:%.9Y:%i:%n' -- "$4")
	known="$known$newline$line"
	frame "installed $2 $3 $line"
}

# install_download digest path
install_download() { install_program "$cache/$1" "$1" "$1" "$2"; }

# unpack digest name member...: the verified archive, unless that has been done ahead.
unpack() {
	archive=$1
	name=$2
	shift 2
	take_turn "$archive" || die unpack "$name" '' "another process has been at work on it for $left s"
	if ! is_unpacked "$archive" "$@"; then
		progress "unpacking $name"
		extract "$archive" "$@" || die unpack "$name" '' "$out"
	fi
	exec 8>&-
}

# install_member digest member path
install_member() {
	program=$cache/$1.unpacked/$2
	if [ -L "$program" ] || [ ! -f "$program" ]; then
		die install "$3" '' "$2 in the archive is not a regular file"
	fi
	got=$(sha256sum <"$program")
	got=${got%% *}
	install_program "$program" "$got" "$1" "$3"
	receipt "$1" "$got" "$2"
}

# receipt source digest member: records what came out of a download, for a caller
# without a record.
receipt() {
	file=$lib/receipts/$1
	{
		if [ -f "$file" ]; then
			while IFS= read -r line; do
				[ "${line#* }" = "$3" ] || printf '%s\n' "$line"
			done <"$file"
		fi
		printf '%s %s\n' "$2" "$3"
	} >"$file.new" && sync -- "$file.new" && mv -f -- "$file.new" "$file"
}

# consumed digest: the download is not needed any more, and is not staged from now on: not
# in this boot, and not by a machine that is made of an image of this one.
consumed() {
	rm -rf -- "${cache:?}/$1" "$cache/$1.unpacked"
	echo used >"$run/downloads/$1"
	true >>"$lib/receipts/$1" || die install "$lib/receipts/$1" '' "cannot write it"
}

# --- units --------------------------------------------------------------------

# pending action unit: lasts until the action or a reboot, after which every unit runs
# with what is on disk.
pending() { : >"$run/pending/$1.$2"; }

# enablement verb unit...
enablement() {
	verb=$1
	shift
	out=$(systemctl --no-reload "$verb" -- "$@" 2>&1) || die "$verb" "$*" '' "$out"
	for dir in $unit_dirs; do
		case $dir in /run/* | /usr/*) ;; *) durable "$dir" "$dir"/*.wants ;; esac
	done
}

# unmask unit...: a mask is a link in place of the unit's file.
unmask() {
	for unit; do
		for dir in $unit_dirs; do
			[ -L "$dir/$unit" ] || continue
			systemctl --no-reload unmask -- "$@" >/dev/null 2>&1
			systemctl --no-reload --runtime unmask -- "$@" >/dev/null 2>&1
			return 0
		done
	done
}

# afresh unit...: earlier failures do not count against the starts that follow.
afresh() { systemctl reset-failed -- "$@" 2>/dev/null || :; }

daemon_reload() {
	remaining
	out=$(timeout "$left" systemctl daemon-reload 2>&1) || die daemon-reload '' '' "$out"
}

# unit verb unit: waits until systemd is done with it. A unit that waits for its next automatic
# start is restarted: systemd would count its start as one that follows a failure.
unit() {
	verb=$1
	if [ "$verb" = start ]; then
		case $(systemctl show --no-pager -p SubState -- "$2" 2>/dev/null) in
		*=auto-restart*) verb=restart ;;
		esac
	fi
	progress "$verb $2"
	remaining
	out=$(timeout "$left" systemctl "$verb" -- "$2" 2>&1) || {
		[ $? -ne 124 ] || out="systemd is not done with it after $left s"
		die "$verb" '' "$2" "$out"
	}
	rm -f -- "$run/pending/restart.$2" "$run/pending/reload.$2"
}

# retire unit cleanup path...: stops the unit, removes with the command cleanup what it
# has left in the kernel, and deletes its files. A command that fails is said, and keeps
# the files, so that the next apply runs it again.
retire() {
	retired=$1
	cleanup=$2
	shift 2
	progress "retiring $retired"
	systemctl --no-reload disable -- "$retired" >/dev/null 2>&1
	remaining
	out=$(timeout "$left" systemctl stop -- "$retired" 2>&1) || {
		case $? in
		5) ;; # systemctl(1): a unit that is not loaded
		124) die stop '' "$retired" "systemd is not done with it after $left s" ;;
		*) die stop '' "$retired" "$out" ;;
		esac
	}
	if [ "$cleanup" ]; then
		remaining
		out=$(timeout "$left" sh -c "$cleanup" 2>&1) || die clean-up "$retired" '' "$out"
	fi
	out=$(rm -f -- "$@" 2>&1) || die retire "$retired" '' "$out"
	systemctl reset-failed -- "$retired" 2>/dev/null
	rm -f -- "$run/pending/restart.$retired" "$run/pending/reload.$retired"
}

# settled gives services that count as started at once a chance to fail.
settled() {
	case $(systemctl show --no-pager -p Type -- "$@" 2>/dev/null) in
	*=simple* | *=exec* | *=idle*) sleep 0.5 ;;
	esac
}
