# Functions that look for the cause of a program's error message. They change nothing,
# and need neither ss nor lsof: which socket listens is in proc_net_tcp(5), whose it
# is among the file descriptors in proc(5). Each answers in lines, with a tab between
# two fields.

# holders port: who listens on it: program, process and unit.
holders() {
	hex=$(printf '%04X' "$1")
	for inode in $(cat /proc/net/tcp /proc/net/tcp6 2>/dev/null | while read -r _ local _ state _ _ _ _ _ number _; do
		[ "$state" = 0A ] && case $local in *:"$hex") echo "$number" ;; esac
	done); do
		# shellcheck disable=SC2012 # the names are numbers
		ls -l /proc/[0-9]*/fd 2>/dev/null | while read -r line; do
			case $line in
			/proc/*) pid=${line#/proc/} pid=${pid%%/*} ;;
			*"socket:[$inode]")
				unit=$(tail -n 1 "/proc/$pid/cgroup")
				printf 'port\t%s\t%s\t%s\t%s\n' "$1" "$(cat "/proc/$pid/comm")" "$pid" "${unit##*/}"
				break
				;;
			esac
		done
	done
}

# full: the file systems that are: mount point, device, free and all KiB.
full() {
	df -P -k | while read -r device blocks _ free _ mount; do
		case $free in *[!0-9]*) continue ;; esac
		[ "$blocks" -gt 0 ] && [ "$free" -lt 1024 ] &&
			printf 'full\t%s\t%s\t%s\t%s\n' "$mount" "$device" "$free" "$blocks"
	done
	:
}
