# Makes a data directory of a new etcd cluster of one member from the data of this member, beside
# them: data directory, mark of the restore, member, its peer URL, token of the cluster, revisions to
# add, unit, authority, certificate, key. It stops the unit, and copies the data: they stay as they
# are. An etcd that nobody else can reach replays the log of the copy and gives a snapshot. The unit
# runs again if this fails. The functions of restores come first.
umask 077
PATH=$PATH:/usr/local/bin
# shellcheck disable=SC2034 # the functions read these
dir=$1 mark=$2 name=$3 stage=$1/restore work=$1/restore/work member=$3
shift 3
peer=$1 token=$2 bump=$3 unit=$4 ca=$5 cert=$6 key=$7

lock
if same "$dir/member"; then exit 0; fi
# Data that were made count while nothing has been written since.
if same "$stage/member" && [ -z "$(find "$dir/member/wal" -newer "$stage/member/restored-from" 2>/dev/null | head -n 1)" ]; then exit 0; fi
[ -d "$dir/member" ] || failed "$dir/member is not there"
rm -rf "$stage"
room_for $(($(du -sk "$dir/member" | cut -f1) * 3 + 131072)) "a copy of the data"
ran=no etcd=''
case $(systemctl is-active "$unit") in
active | activating | reloading) ran=yes ;; # without a quorum it never gets beyond "activating"
esac
ended() {
	[ -z "$etcd" ] || kill "$etcd" 2>/dev/null
	[ -d "$stage/member" ] && return
	rm -rf "$stage"
	[ "$ran" = no ] || systemctl start --no-block "$unit"
}
trap ended EXIT
trap 'exit 1' HUP INT TERM
systemctl stop "$unit" || failed "$unit does not stop"
mkdir -p "$work/copy" || exit 1
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
make_data "the snapshot of the data" "$member" "$peer" "$member=$peer" "$token" "$bump"
