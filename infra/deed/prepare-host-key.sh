# Makes a new SSH host key beside the one in use, but only while the one in use is the
# given one, and prints the public key that the machine is to use: public key.
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
	sync "$key.next" "$key.next.pub" "${key%/*}"
fi
cut -d' ' -f1,2 "$key.next.pub"
