# Functions that make the machine's programs trust authorities beside those of its distribution.
# They need the file of the authorities ($authorities), and $root, which is empty but in tests.
# shellcheck disable=SC2154 # observe.sh and apply.sh have the others

# trusted file: whether the machine's programs trust each certificate in it. Where apt, curl and programs in Go look:
# https://go.dev/src/crypto/x509/root_linux.go.
trusted() {
	bundle=
	for place in "$root/etc/ssl/certs/ca-certificates.crt" "$root/etc/pki/tls/certs/ca-bundle.crt"; do
		[ ! -f "$place" ] || bundle=$bundle$(cat -- "$place")$newline
	done
	certificate=
	while IFS= read -r line; do
		certificate=$certificate$line$newline
		case $line in
		'-----END '*)
			case $bundle in *"$certificate"*) ;; *) return 1 ;; esac
			certificate=
			;;
		esac
	done <"$1"
}

# observe_trust: the file of authorities. Answers if the machine does not trust what is in it.
observe_trust() {
	read -r path
	[ ! -f "$path" ] || trusted "$path" || frame "distrusted $path"
}

# trust certificates unit...: before anything is downloaded, since the server may be known by them only.
trust() {
	[ ! -f "$authorities" ] || [ -L "$authorities" ] || [ "$(cat -- "$authorities")" != "$1" ] || ! trusted "$authorities" || return 0
	progress "trusting the authorities in $authorities"
	exec 6>"$run/trust" # a staging and an apply may be at it at once
	! command -v flock >/dev/null || flock -w 60 6 || die trust "$authorities" '' "another process has been at work on it for 60 s"
	new=$authorities.$$
	out=$( (umask 022 && mkdir -p -- "${authorities%/*}" && printf '%s\n' "$1" >"$new" && sync -- "$new" && mv -fT -- "$new" "$authorities") 2>&1) ||
		die trust "$authorities" '' "$out"
	shift
	outdated "$@"
	renew_trust "$authorities"
	exec 6>&-
	trusted "$authorities" || die trust "$authorities" '' "$renewal has not added them${out:+: $out}"
}

# distrust unit...: the machine trusts its distribution's authorities only.
distrust() {
	progress "not trusting the authorities in $authorities any more"
	outdated "$@"
	renew_trust ''
	out=$(rm -f -- "$authorities" 2>&1) || die trust "$authorities" '' "$out"
	rmdir -- "${authorities%/*}" 2>/dev/null || :
}

# outdated unit...: those that systemd knows have read other authorities. It comes first, so that an interruption loses no restart.
outdated() {
	mkdir -p -- "$run/pending"
	for unit; do
		case $(systemctl show --no-pager -p LoadState -- "$unit" 2>/dev/null) in *=loaded) true >"$run/pending/restart.$unit" ;; esac
	done
}

# distrust_at_last directory unit...: unless another role has its claim there.
distrust_at_last() {
	[ -e "$authorities" ] || return 0
	rmdir -- "$1" 2>/dev/null || [ ! -e "$1" ] || return 0
	shift
	distrust "$@"
}

# renew_trust file: the distribution's program makes the bundle, with the certificates in the file or, if that is empty, without. Each
# one needs a file of its own, since rehash(1) skips a file with several.
renew_trust() {
	if command -v update-ca-certificates >/dev/null; then
		renewal='update-ca-certificates --fresh' # without the links of former ones
		anchors=$root/usr/local/share/ca-certificates
	elif command -v update-ca-trust >/dev/null; then
		renewal=update-ca-trust
		anchors=$root/etc/pki/ca-trust/source/anchors
	else
		die trust "$authorities" '' "neither update-ca-certificates nor update-ca-trust is on the machine: its image lacks the package ca-certificates"
	fi
	out=$(
		umask 022
		exec 2>&1
		rm -f -- "$anchors"/k8s-from-scratch-*.crt && mkdir -p -- "$anchors" && { [ -z "$1" ] || each_certificate <"$1"; } && sync -- "$anchors" && $renewal </dev/null 6>&-
	) || die trust "$authorities" '' "$renewal: $out"
}

# each_certificate: writes those of standard input into files.
each_certificate() {
	number=0
	while IFS= read -r line; do
		case $line in '-----BEGIN '*) number=$((number + 1)) ;; esac
		printf '%s\n' "$line" >>"$anchors/k8s-from-scratch-$number.crt" || return
	done
}
