# Functions that observe the machine. Each reads what to observe from standard
# input, one item a line, and answers in frames that end in a NUL byte. They
# change nothing. The variables lib, run, unit_dirs and max_file, max_content
# (bytes) are set before.
# shellcheck disable=SC2154

frame() { printf '%s\000' "$*"; }

# let_finish gives a running apply, perhaps one whose caller was killed, a few seconds
# to end, so that no half-applied state is reported.
let_finish() {
	if [ -e "$run/lock" ] && command -v flock >/dev/null; then
		flock -s -w 5 "$run/lock" true
	fi
}

# observe_directories: paths; symbolic links are followed.
observe_directories() {
	set --
	while IFS= read -r path; do set -- "$@" "$path"; done
	stat -L -c '%f:%u:%g:%U:%G:%s:%.9Y:%i:%n' -- "$@" 2>/dev/null |
		while IFS= read -r line; do frame "directory $line"; done
}

# observe_contents: paths of directories. Answers with everything in them but directories that are not
# empty, and what was moved aside.
observe_contents() {
	while IFS= read -r path; do
		find "$path/" -mindepth 1 -name '*.displaced.*' -prune -o \( ! -type d -o -empty \) -printf 'inside %p\0' 2>/dev/null
	done
}

# observe_files: paths. Regular files are hashed; with $1 = content, small ones
# are sent too.
observe_files() {
	content=${1:-}
	set --
	while IFS= read -r path; do set -- "$@" "$path"; done
	found=$(stat -c '%f:%u:%g:%U:%G:%s:%.9Y:%i:%n' -- "$@" 2>/dev/null)
	set --
	while IFS= read -r line; do
		[ -n "$line" ] || continue
		frame "file $line"
		case $line in 8???:*) ;; *) continue ;; esac # S_IFREG
		path=${line#*:*:*:*:*:*:*:*:}
		size=${line#*:*:*:*:*:}
		size=${size%%:*}
		[ "$size" -le "$max_file" ] || continue
		set -- "$@" "$path"
		if [ "$content" = content ] && [ "$size" -le "$max_content" ]; then
			printf 'content '
			base64 -w 0 -- "$path" 2>/dev/null
			printf ' %s\000' "$path"
		fi
	done <<-END
		$found
	END
	[ $# -eq 0 ] || sha256sum -z -- "$@" 2>/dev/null
}

# observe_programs: lines "size:mtime:inode:path" as last recorded, or ":::path".
# A program that still has its recorded size, time and inode is not hashed again.
observe_programs() {
	set --
	while IFS= read -r line; do
		known="$known$newline$line"
		set -- "$@" "${line#*:*:*:}"
	done
	found=$(stat -c '%f:%u:%g:%U:%G:%s:%.9Y:%i:%n' -- "$@" 2>/dev/null)
	set --
	while IFS= read -r line; do
		[ -n "$line" ] || continue
		frame "file $line"
		case $line in 8???:*) ;; *) continue ;; esac # S_IFREG
		path=${line#*:*:*:*:*:*:*:*:}
		case "$known$newline" in
		*"$newline${line#*:*:*:*:*:}$newline"*) frame "same $path" ;;
		*) set -- "$@" "$path" ;;
		esac
	done <<-END
		$found
	END
	[ $# -eq 0 ] || sha256sum -z -- "$@" 2>/dev/null
}

# observe_receipts: digests of downloads. Answers with what Apply took out of them.
observe_receipts() {
	while IFS= read -r source; do
		[ -f "$lib/receipts/$source" ] || continue
		while IFS= read -r line; do frame "receipt $source $line"; done <"$lib/receipts/$source"
	done
}

# observe_units: unit names.
observe_units() {
	set --
	while IFS= read -r unit; do set -- "$@" "$unit"; done
	read -r uptime _ </proc/uptime # the checks below take seconds
	frame "uptime $uptime"
	printf 'units '
	systemctl show --no-pager -p Id,LoadState,ActiveState,SubState,UnitFileState,FragmentPath \
		-p DropInPaths,NeedDaemonReload,Result,NRestarts,MainPID,ActiveEnterTimestampMonotonic \
		-- "$@" 2>/dev/null
	printf '\000'
	# The manager remembers UnitFileState; this looks at the links on disk.
	printf 'enablement '
	systemctl list-unit-files --no-pager --no-legend --full --plain -- "$@" 2>/dev/null
	printf '\000'
	for unit; do
		for dir in $unit_dirs; do
			for path in "$dir/$unit.d/"*.conf; do
				if [ -e "$path" ] || [ -L "$path" ]; then frame "dropin $unit $path"; fi
			done
		done
		for action in restart reload; do
			[ ! -e "$run/pending/$action.$unit" ] || frame "pending $action $unit"
		done
	done
}

# observe_checks: lines "unit command". A check that fails prints the reason. The check
# of a unit that is not active is not run.
observe_checks() {
	checks=
	set --
	while IFS= read -r line; do
		checks=$checks$line$newline
		set -- "$@" "${line%% *}"
	done
	# One line a unit, in their order.
	states=$(systemctl is-active -- "$@" 2>/dev/null)
	while IFS= read -r line; do
		[ -n "$line" ] || continue
		unit=${line%% *}
		state=${states%%"$newline"*}
		states=${states#*"$newline"}
		case $state in active | reloading | refreshing) ;; *) continue ;; esac
		found=$(timeout 10 sh -c "${line#* }" 2>&1 </dev/null) && continue
		status=$?
		[ "$status" -ne 124 ] || found="no answer after 10 s"
		frame "check $unit ${found:-exit status $status}"
	done <<-END
		$checks
	END
}

# observe_sysctls: paths below /proc/sys. The kernel returns a setting only to one
# read(2), but the shell's read reads byte by byte.
observe_sysctls() {
	set --
	while IFS= read -r path; do set -- "$@" "/proc/sys/$path"; done
	grep -s -H '' -- "$@" |
		while IFS= read -r line; do
			path=${line%%:*}
			frame "sysctl ${path#/proc/sys/} ${line#*:}"
		done
}

# module_evidence prints a path that exists exactly if the kernel has the module, for
# modules that leave no other trace when built in.
module_evidence() {
	case $1 in
	br_netfilter) echo /proc/sys/net/bridge ;;
	nf_conntrack) echo /proc/sys/net/netfilter ;;
	ip_vs) echo /proc/net/ip_vs ;;
	ip_tables) echo /proc/net/ip_tables_names ;;
	ip6_tables) echo /proc/net/ip6_tables_names ;;
	tun) echo /dev/net/tun ;;
	esac
}

# has_module: whether the kernel has it, loaded or built in, as far as can be known. A
# kernel that cannot load modules never gets another one, so there the answer is
# yes unless there is evidence against it.
has_module() {
	[ -d "/sys/module/$1" ] && return
	if [ -z "$filesystems" ]; then
		filesystems=$(cat /proc/filesystems)$newline
		builtin=$(cat "/lib/modules/$(uname -r)/modules.builtin" 2>/dev/null)
	fi
	dashed=$1
	while :; do
		case $dashed in *_*) dashed=${dashed%%_*}-${dashed#*_} ;; *) break ;; esac
	done
	case $builtin in */"$1".ko* | */"$dashed".ko*) return ;; esac
	case $filesystems in *"	$1$newline"*) return ;; esac
	evidence=$(module_evidence "$1")
	if [ -n "$evidence" ]; then
		[ -e "$evidence" ]
	else
		[ ! -e /proc/modules ]
	fi
}

# observe_modules: names, with underscores.
observe_modules() {
	while IFS= read -r name; do
		! has_module "$name" || frame "module $name"
	done
}

# observe_packages: names.
observe_packages() {
	set --
	while IFS= read -r name; do set -- "$@" "$name"; done
	if command -v dpkg-query >/dev/null; then
		# shellcheck disable=SC2016 # the format is dpkg-query's
		dpkg-query -W -f '${Package} ${db:Status-Status}\n' -- "$@" 2>/dev/null
	else
		rpm -q --qf '%{NAME} installed\n' -- "$@" 2>/dev/null
	fi |
		while read -r name status _; do
			[ "$status" != installed ] || frame "package $name"
		done
}

observe_system() {
	read -r boot </proc/sys/kernel/random/boot_id
	frame "boot $boot"
	frame "time $(date +%s)"
}
