#!/bin/sh
# pod-resolver link|check LINK FILE...
#
# LINK is the resolv.conf that the kubelet gives to pods. It points to the first
# FILE whose DNS servers pods can reach: one that names a server, and none that
# listens on loopback, as the stub of systemd-resolved does and dnsmasq may.
#
# "link" makes LINK; the kubelet's unit runs it before every start. "check"
# changes nothing. When something is wrong both say what, and fail.
set -u
action=$1
link=$2
shift 2

usable() {
	[ -f "$1" ] && [ -r "$1" ] || return 1
	named=
	while read -r word server _ || [ -n "$word" ]; do
		[ "$word" = nameserver ] || continue
		case $server in 127.* | 0.0.0.0 | ::1 | ::1%* | ::ffff:127.*) return 1 ;; esac
		named=$server
	done <"$1"
	[ -n "$named" ]
}

wanted=
for file; do
	if usable "$file"; then
		wanted=$file
		break
	fi
done
if [ -z "$wanted" ]; then
	echo "no DNS server for pods: each of $* is missing, names none, or names one on loopback; write a file that names others, and set resolvConf of the kubelet to it"
	exit 1
fi

if [ "$action" = link ]; then
	mkdir -p -- "${link%/*}" && ln -sfT -- "$wanted" "$link"
	exit
fi
found=$(readlink -- "$link") || found=nothing
if [ "$found" != "$wanted" ]; then
	echo "$link points to $found, wanted $wanted"
	exit 1
fi
