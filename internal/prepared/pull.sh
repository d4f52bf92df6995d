# Pulls container images into containerd's directory, as its CRI plugin will look for
# them, with a containerd that runs for this script alone.
set -eu
umask 022
work=$(mktemp -d /run/pull.XXXXXX)
ctr() { /usr/local/bin/ctr --address "$work/socket" --namespace k8s.io "$@"; }
printf 'version = 3\ndisabled_plugins = ["io.containerd.cri.v1.images", "io.containerd.cri.v1.runtime", "io.containerd.grpc.v1.cri"]\n' >"$work/config.toml"
/usr/local/bin/containerd --config "$work/config.toml" --address "$work/socket" --state "$work/state" >"$work/log" 2>&1 &
containerd=$!
trap 'kill "$containerd" 2>/dev/null; wait "$containerd" || :; tail -n 5 "$work/log" >&2' EXIT
look=0
until ctr version >/dev/null 2>&1; do
	look=$((look + 1))
	[ "$look" -lt 100 ]
	sleep 0.1
done

# mirror registry url
mirror() {
	mkdir -p "$work/hosts/$1"
	printf '[host."%s"]\n  capabilities = ["pull", "resolve"]\n' "$2" >"$work/hosts/$1/hosts.toml"
}

# pull reference
pull() { ctr images pull --hosts-dir "$work/hosts" "$1" >/dev/null; }

finish() {
	kill "$containerd"
	wait "$containerd" || :
	trap - EXIT
	rm -rf -- "$work"
}
