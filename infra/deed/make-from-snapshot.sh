# Makes a data directory of etcd from a snapshot in S3, beside the one in use: data directory, mark of
# the restore, name, endpoint, region, bucket, prefix, size, sha256, then member, its peer URL, initial
# cluster, its token, revisions to add. Nothing is left of one that fails. The functions for S3 and of
# restores come first.
umask 077
PATH=$PATH:/usr/local/bin
# shellcheck disable=SC2034 # the functions read these
dir=$1 mark=$2 name=$3 stage=$1/restore work=$1/restore/work
shift 3
# shellcheck disable=SC2034 # the functions read these
S3_ENDPOINT=$1 S3_REGION=$2 S3_BUCKET=$3 S3_KMS_KEY='' S3_WORK=$work
prefix=$4 size=$5 sum=$6
shift 6
member=$1 peer=$2 cluster=$3 token=$4 bump=$5
made() { same "$1" && [ "$(cat "$1/restored-token" 2>/dev/null)" = "$token" ]; }

mkdir -p "$dir"
lock
if made "$stage/member" || made "$dir/member"; then exit 0; fi
rm -rf "$stage"
mkdir -p "$work" || exit 1
trap '[ -d "$stage/member" ] || rm -rf "$stage"' EXIT
trap 'exit 1' HUP INT TERM
room_for $((size * 2 / 1024 + 131072)) "the snapshot"
s3_get "$prefix$name.db" "$work/db" || exit 1
has=$(stat -c %s "$work/db")
[ "$has" = "$size" ] || failed "s3://$S3_BUCKET/$prefix$name.db is damaged: it has $has bytes, and its description says $size"
has=$(sha256sum "$work/db" | cut -d' ' -f1)
[ "$has" = "$sum" ] || failed "s3://$S3_BUCKET/$prefix$name.db is damaged: its SHA-256 is $has, and its description says $sum"
etcdutl snapshot status "$work/db" >/dev/null 2>"$work/said" || failed "reading the snapshot $name: $(tail -n 1 "$work/said")"
make_data "the snapshot $name" "$member" "$peer" "$cluster" "$token" "$bump"
