# Makes a data directory of etcd from a snapshot in S3, beside the one in use: endpoint, region,
# bucket, prefix, name, size, sha256, then data directory, mark of the restore, member, its peer URL,
# initial cluster, its token, revisions to add. Nothing is left of one that fails. The functions for
# S3 come first.
umask 077
PATH=$PATH:/usr/local/bin
# shellcheck disable=SC2034 # the functions read these
S3_ENDPOINT=$1 S3_REGION=$2 S3_BUCKET=$3 S3_KMS_KEY=''
prefix=$4 name=$5 size=$6 sum=$7
shift 7
dir=$1 mark=$2 member=$3 peer=$4 cluster=$5 token=$6 bump=$7
stage=$dir/restore

failed() {
	echo "$1" >&2
	exit 1
}
same() { [ "$(cat "$1/restored-from" 2>/dev/null)" = "$mark" ] && [ "$(cat "$1/restored-snapshot" 2>/dev/null)" = "$name" ] && [ "$(cat "$1/restored-token" 2>/dev/null)" = "$token" ]; }

mkdir -p "$dir"
exec 9>/run/etcd-restore.lock
flock -w 600 9 || failed "another restore on this machine has not ended within 10 minutes"
if same "$stage/member" || same "$dir/member"; then exit 0; fi
rm -rf "$stage"
S3_WORK=$stage/work
mkdir -p "$S3_WORK" || exit 1
trap '[ -d "$stage/member" ] || rm -rf "$stage"' EXIT
trap 'exit 1' HUP INT TERM
need=$((size * 2 / 1024 + 131072))
free=$(df -Pk "$dir" | awk 'NR == 2 { print $4 }')
[ "$free" -ge "$need" ] || failed "no room for the snapshot: $dir has $free KiB free, and $need KiB are needed"
s3_get "$prefix$name.db" "$S3_WORK/db" || exit 1
has=$(stat -c %s "$S3_WORK/db")
[ "$has" = "$size" ] || failed "s3://$S3_BUCKET/$prefix$name.db is damaged: it has $has bytes, and its description says $size"
has=$(sha256sum "$S3_WORK/db" | cut -d' ' -f1)
[ "$has" = "$sum" ] || failed "s3://$S3_BUCKET/$prefix$name.db is damaged: its SHA-256 is $has, and its description says $sum"
etcdutl snapshot status "$S3_WORK/db" >/dev/null 2>"$S3_WORK/said" || failed "reading the snapshot $name: $(tail -n 1 "$S3_WORK/said")"
etcdutl snapshot restore "$S3_WORK/db" --data-dir "$S3_WORK/data" --name "$member" --initial-advertise-peer-urls "$peer" \
	--initial-cluster "$cluster" --initial-cluster-token "$token" --bump-revision "$bump" --mark-compacted >/dev/null 2>"$S3_WORK/said" ||
	failed "restoring the snapshot $name: $(tail -n 1 "$S3_WORK/said")"
rm -f "$S3_WORK/db"
echo "$mark" >"$S3_WORK/data/member/restored-from"
echo "$name" >"$S3_WORK/data/member/restored-snapshot"
echo "$token" >"$S3_WORK/data/member/restored-token"
sync -f "$dir"
mv "$S3_WORK/data/member" "$stage/member"
