#!/bin/sh
# pod-routes set|unset|check FILE PROTOCOL METRIC
#
# FILE has a line "NETWORK via ADDRESS" for the pods of each other node. PROTOCOL
# is a number that marks these routes in the kernel. METRIC lets others with the
# same networks stay beside them.
#
# "set" makes the routes of FILE, and removes others that have the mark. "unset"
# removes all that have it. "check" changes nothing; when something is wrong it
# says what, and fails.
set -u
action=$1
file=$2
protocol=$3
metric=$4

# marked prints the routes that have the mark, in the form of FILE.
marked() {
	ip -4 route show proto "$protocol" | while read -r network via address _; do
		echo "$network $via $address"
	done
}

remove() {
	while read -r network _ address; do
		ip -4 route del "$network" via "$address" proto "$protocol"
	done
}

case $action in
set)
	status=0
	while read -r network _ address; do
		ip -4 route replace "$network" via "$address" proto "$protocol" metric "$metric" && continue
		echo "cannot set the route to $network: is $address in a network of this machine?" >&2
		status=1
	done <"$file"
	marked | grep -vxFf "$file" | remove
	exit "$status"
	;;
unset)
	marked | remove
	;;
check)
	found=$(marked)
	problems=$(
		grep -vxFe "$found" "$file" | sed 's/^/no route to /'
		printf '%s' "$found" | grep -vxFf "$file" | sed 's/^/unwanted route to /'
	)
	[ -n "$problems" ] || exit 0
	printf '%s\n' "$problems" | sed '$!s/$/;/'
	exit 1
	;;
esac
