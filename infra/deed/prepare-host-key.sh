# Makes a new SSH host key beside those in use, but only while the machine has none but the given ones, and prints
# the public key that the machine is to use: public keys of the launch...
set -eu
dir=/etc/ssh
# An sshd under the rules of FIPS, or with HostKey or HostKeyAlgorithms of its own, may not offer ed25519.
settings=$(sshd -T -C user=root,host=localhost,addr=127.0.0.1,laddr=127.0.0.1,lport=22 2>/dev/null) || settings=
offers() { # type, name of its algorithm
	printf '%s\n' "$settings" | grep -q "^hostkey .*ssh_host_$1_key\$" &&
		printf '%s\n' "$settings" | grep -qE "^hostkeyalgorithms (.*,)?$2(,|\$)"
}
for type in ed25519 ecdsa; do
	[ -s "$dir/ssh_host_${type}_key.pub" ] || continue
	current=$(cut -d' ' -f1,2 "$dir/ssh_host_${type}_key.pub")
	# A key of a type that the launch had none of is somebody else's, such as the distribution's.
	own=$current
	case " $* " in
	*" ${current%% *} "*) ;;
	'  ') ;;
	*) own= ;;
	esac
	for launch; do
		[ "$current" != "$launch" ] || own=
	done
	if [ "$own" ]; then
		echo "$own"
		exit 0
	fi
done
type=ed25519
if ! offers ed25519 ssh-ed25519 && offers ecdsa ecdsa-sha2-nistp256; then
	type=ecdsa
fi
next=$dir/ssh_host_${type}_key.next
if ! [ -s "$next.pub" ]; then
	rm -f "$next"
	ssh-keygen -q -t "$type" -N '' -C '' -f "$next"
	sync "$next" "$next.pub" "$dir"
fi
cut -d' ' -f1,2 "$next.pub"
