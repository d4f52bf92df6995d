#!/bin/bash
# virtual-address configure ADDRESS TEMPLATE FILE
# virtual-address check PORT
#
# "configure" writes keepalived's configuration: TEMPLATE with the name of the
# interface that has ADDRESS. "check" fails unless HAProxy answers on PORT of
# loopback.
set -u
case $1 in
configure)
	read -r _ interface _ < <(ip -4 -o address show to "$2")
	if [ -z "${interface:-}" ]; then
		echo "no interface of this machine has the address $2" >&2
		exit 1
	fi
	sed "s/@INTERFACE@/${interface%@*}/" "$3" >"$4"
	;;
check)
	exec 3<>"/dev/tcp/127.0.0.1/$2" || exit 1
	printf 'GET /alive HTTP/1.0\r\n\r\n' >&3
	read -r -t 1 answer <&3 || exit 1
	[[ $answer == *" 200 "* ]]
	;;
esac
