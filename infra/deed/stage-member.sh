# Makes a data directory of a new etcd cluster of one member from the data of this member, beside
# them: data directory, mark of the restore, member, its peer URL, token of the cluster, revisions to
# add, unit, authority, certificate, key. It stops the unit, and copies the data: they stay as they
# are. An etcd that nobody else can reach replays the log of the copy and gives a snapshot. The unit
# runs again if this fails.
umask 077
PATH=$PATH:/usr/local/bin
dir=$1 mark=$2 member=$3 peer=$4 token=$5 bump=$6 unit=$7 ca=$8 cert=$9
shift 9
key=$1
stage=$dir/restore name=$member

failed() {
	echo "$1" >&2
	exit 1
}
same() { [ "$(cat "$1/restored-from" 2>/dev/null)" = "$mark" ] && [ "$(cat "$1/restored-snapshot" 2>/dev/null)" = "$name" ]; }

exec 9>/run/etcd-restore.lock
flock -w 600 9 || failed "another restore on this machine has not ended within 10 minutes"
if same "$dir/member"; then exit 0; fi
# Data that were made count while nothing has been written since.
if same "$stage/member" && [ -z "$(find "$dir/member/wal" -newer "$stage/member/restored-from" 2>/dev/null | head -n 1)" ]; then exit 0; fi
[ -d "$dir/member" ] || failed "$dir/member is not there"
ran=no etcd=''
case $(systemctl is-active "$unit") in
active | activating | reloading) ran=yes ;; # without a quorum it never gets beyond "activating"
esac
rm -rf "$stage"
ended() {
	[ -z "$etcd" ] || kill "$etcd" 2>/dev/null
	[ -d "$stage/member" ] && return
	rm -rf "$stage"
	[ "$ran" = no ] || systemctl start --no-block "$unit"
}
trap ended EXIT
trap 'exit 1' HUP INT TERM
systemctl stop "$unit" || failed "$unit does not stop"
work=$stage/work
mkdir -p "$work/copy" || exit 1
need=$(($(du -sk "$dir/member" | cut -f1) * 3 + 131072))
free=$(df -Pk "$dir" | awk 'NR == 2 { print $4 }')
[ "$free" -ge "$need" ] || failed "no room for a copy of the data: $dir has $free KiB free, and $need KiB are needed"
cp -a "$dir/member" "$work/copy/" || exit 1
rm -f "$work"/copy/member/restored-*
client=https://127.0.0.1:12379 alone=https://127.0.0.1:12380
etcd --name "$member" --data-dir "$work/copy" --force-new-cluster --quota-backend-bytes=-1 \
	--listen-client-urls $client --advertise-client-urls $client --listen-peer-urls $alone \
	--initial-advertise-peer-urls $alone --initial-cluster "$member=$alone" \
	--cert-file "$cert" --key-file "$key" --trusted-ca-file "$ca" --client-cert-auth \
	--peer-cert-file "$cert" --peer-key-file "$key" --peer-trusted-ca-file "$ca" --peer-client-cert-auth >"$work/log" 2>&1 9>&- &
etcd=$!
ask() { etcdctl --endpoints $client --cacert "$ca" --cert "$cert" --key "$key" --dial-timeout 5s "$@"; }
tries=0
until ask --command-timeout 5s get health >/dev/null 2>&1; do # "endpoint health" fails while there is an alarm
	kill -0 "$etcd" 2>/dev/null || failed "etcd does not start with a copy of the data: $(tail -n 1 "$work/log")"
	tries=$((tries + 1))
	[ $tries -le 300 ] || failed "etcd does not answer with a copy of the data: $(tail -n 1 "$work/log")"
	sleep 0.3
done
ask --command-timeout 15m snapshot save "$work/db" >/dev/null 2>"$work/said" || failed "taking a snapshot of the data: $(tail -n 1 "$work/said")"
kill "$etcd"
wait "$etcd" 2>/dev/null
etcd=''
rm -rf "$work/copy"
etcdutl snapshot restore "$work/db" --data-dir "$work/data" --name "$member" --initial-advertise-peer-urls "$peer" \
	--initial-cluster "$member=$peer" --initial-cluster-token "$token" --bump-revision "$bump" --mark-compacted >/dev/null 2>"$work/said" ||
	failed "restoring the snapshot of the data: $(tail -n 1 "$work/said")"
rm -f "$work/db"
echo "$mark" >"$work/data/member/restored-from"
echo "$name" >"$work/data/member/restored-snapshot"
sync -f "$dir"
mv "$work/data/member" "$stage/member"
