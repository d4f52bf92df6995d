# Puts the new SSH host key in place, if it is not there yet, and deletes all others: public key. A unit prints its
# fingerprint on the console at each boot, where whoever may only write tags cannot forge it.
set -eu
case $1 in
ecdsa-*) type=ecdsa ;;
*) type=ed25519 ;;
esac
key=/etc/ssh/ssh_host_${type}_key
units=/etc/systemd/system
print="ssh-keygen -l -f $key.pub | cut -d' ' -f2 | xargs echo 'k8s-from-scratch: the SSH host key is' >/dev/console"
[ ! -e "$key.next" ] || mv -f "$key.next" "$key"
[ ! -e "$key.next.pub" ] || mv -f "$key.next.pub" "$key.pub"
mkdir -p "$units/multi-user.target.wants"
cat >"$units/print-host-key.service" <<END
[Unit]
Description=Prints the fingerprint of the SSH host key on the console
After=ssh.service

[Service]
Type=oneshot
ExecStart=/bin/sh -c "$print"
END
ln -sf ../print-host-key.service "$units/multi-user.target.wants/print-host-key.service"
sync "$units/print-host-key.service" "$units/multi-user.target.wants"
sync "${key%/*}" # or a power cut would bring back the key that nobody trusts any more
for other in rsa ecdsa ed25519 dsa; do
	[ "$other" != "$type" ] || continue
	for file in key key.pub key.next key.next.pub; do
		rm -f "/etc/ssh/ssh_host_${other}_$file"
	done
done
sh -c "$print" || true # a machine may have no console
systemctl try-reload-or-restart ssh 2>/dev/null || systemctl try-reload-or-restart sshd
