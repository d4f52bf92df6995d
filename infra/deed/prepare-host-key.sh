# Makes a new SSH host key beside the one in use, unless the one in use is no
# longer the one given, and prints the public half of that which is to be used:
# public key.
set -eu
launch=$1
key=/etc/ssh/ssh_host_ed25519_key
current=$(cut -d' ' -f1,2 "$key.pub")
if [ "$current" != "$launch" ]; then
	echo "$current"
	exit 0
fi
if ! [ -s "$key.next.pub" ]; then
	rm -f "$key.next"
	ssh-keygen -q -t ed25519 -N '' -C '' -f "$key.next"
	sync "$key.next" "$key.next.pub"
fi
cut -d' ' -f1,2 "$key.next.pub"
