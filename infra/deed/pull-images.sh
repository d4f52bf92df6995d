# Pulls container images into containerd's directory, as its CRI plugin will look for them, with a containerd that runs for this
# script alone: containerd, ctr, references of images. Standard input is an archive of containerd's files about registries.
set -eu
umask 022
work=/run/k8s-from-scratch-pull
# One that was cut off may have left its containerd, which holds the directory.
if [ -e "$work/pid" ]; then
	kill "$(cat "$work/pid")" 2>/dev/null || :
	sleep 1
fi
rm -rf -- "$work"
mkdir -p "$work/hosts"
tar -x -f - -C "$work/hosts"
containerd=$1
ctr=$2
shift 2
printf 'version = 3\ndisabled_plugins = ["io.containerd.cri.v1.images", "io.containerd.cri.v1.runtime", "io.containerd.grpc.v1.cri"]\n' >"$work/config.toml"
"$containerd" --config "$work/config.toml" --address "$work/socket" --state "$work/state" >"$work/log" 2>&1 &
pid=$!
echo "$pid" >"$work/pid"
trap 'kill "$pid" 2>/dev/null; wait "$pid" || :; tail -n 5 "$work/log" >&2; rm -rf -- "$work"' EXIT
look=0
until "$ctr" --address "$work/socket" version >/dev/null 2>&1; do
	look=$((look + 1))
	[ "$look" -lt 100 ]
	sleep 0.1
done
for image; do
	try=1
	until "$ctr" --address "$work/socket" --namespace k8s.io images pull --hosts-dir "$work/hosts" "$image" >/dev/null 2>"$work/said"; do
		if [ "$try" -ge 4 ]; then
			echo "pull $image: $(tail -n 3 "$work/said")" >&2
			exit 1
		fi
		sleep $((try * 2))
		try=$((try + 1))
	done
done
kill "$pid"
wait "$pid" || :
trap - EXIT
rm -rf -- "$work"
