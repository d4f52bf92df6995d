# Prints the description of a snapshot of etcd in S3: endpoint, region, bucket, prefix, name. Without
# a name it is the newest that counts. It changes nothing. The functions for S3 come first.
# shellcheck disable=SC2034 # the functions read these
S3_ENDPOINT=$1 S3_REGION=$2 S3_BUCKET=$3 S3_KMS_KEY=''
prefix=$4 name=$5
S3_WORK=$(mktemp -d) || exit 1
trap 'rm -rf "$S3_WORK"' EXIT
trap 'exit 1' HUP INT TERM
if [ -z "$name" ]; then
	s3_list "$prefix" >"$S3_WORK/all" || exit 1
	name=$(snapshot_names "$prefix" "$S3_WORK/all" | tail -n 1)
	[ -n "$name" ] || {
		echo "s3://$S3_BUCKET/$prefix has no snapshot" >&2
		exit 1
	}
fi
s3_get "$prefix$name.json" "$S3_WORK/description" || exit 1
cat "$S3_WORK/description"
