# Puts the new SSH host key in place, if there is one, and deletes all others.
set -eu
key=/etc/ssh/ssh_host_ed25519_key
[ ! -e "$key.next" ] || mv -f "$key.next" "$key"
[ ! -e "$key.next.pub" ] || mv -f "$key.next.pub" "$key.pub"
sync "${key%/*}" # or a power cut would bring back the key that nobody trusts any more
for other in rsa ecdsa dsa; do
	rm -f "/etc/ssh/ssh_host_${other}_key" "/etc/ssh/ssh_host_${other}_key.pub"
done
systemctl try-reload-or-restart ssh 2>/dev/null || systemctl try-reload-or-restart sshd
