# Functions for S3, with the credentials of the instance's role. They read these variables:
#   S3_ENDPOINT  where requests go, without a bucket: https://s3.us-east-1.amazonaws.com
#   S3_REGION    the bucket's region
#   S3_BUCKET    the bucket
#   S3_KMS_KEY   the KMS key with which S3 encrypts what is put; empty: as the bucket says
#   S3_QUICK     if not empty, an answer is waited for some seconds only, and nothing is tried again
#   S3_WORK      a directory for what is being received, of this process alone
# A function that fails says why in one line on standard error, and returns 1. A failure of the
# network, or one that S3 asks to repeat, is tried again twice.

# s3_credentials asks the metadata service, which answers with another key before one ends.
s3_credentials() {
	imds=http://169.254.169.254/latest
	if ! {
		imds_token=$(curl -sSf -m 5 -X PUT -H 'X-aws-ec2-metadata-token-ttl-seconds: 60' $imds/api/token) &&
			s3_role=$(curl -sSf -m 5 -H "X-aws-ec2-metadata-token: $imds_token" $imds/meta-data/iam/security-credentials/) &&
			imds_said=$(curl -sSf -m 5 -H "X-aws-ec2-metadata-token: $imds_token" "$imds/meta-data/iam/security-credentials/$s3_role")
	} 2>/dev/null; then
		echo "this instance has no credentials: it has no instance profile, or its role cannot be used" >&2
		return 1
	fi
	s3_id=$(s3_field AccessKeyId) s3_secret=$(s3_field SecretAccessKey) s3_token=$(s3_field Token)
	[ -n "$s3_secret" ] || {
		echo "the metadata service has no credentials of role $s3_role" >&2
		return 1
	}
}

s3_field() { printf '%s\n' "$imds_said" | sed -n "s/.*\"$1\" *: *\"\([^\"]*\)\".*/\1/p"; }

# s3_request asks S3: what is done (for errors), the path and query after the bucket, further
# arguments of curl. The answer is in $S3_WORK/answer. The secret goes to curl on standard input, so
# that no list of processes shows it. The curl of Debian 12 does not set x-amz-content-sha256.
s3_request() {
	s3_what=$1 s3_path=$2
	shift 2
	s3_credentials || return 1
	if [ -n "${S3_QUICK:-}" ]; then
		set -- --connect-timeout 3 -m 8 "$@"
	else
		set -- --connect-timeout 10 --speed-limit 1000 --speed-time 30 --retry 2 --retry-max-time 120 "$@"
	fi
	s3_status=$(printf 'user = "%s:%s"\nheader = "x-amz-security-token: %s"\n' "$s3_id" "$s3_secret" "$s3_token" |
		curl -sS --config - --aws-sigv4 "aws:amz:$S3_REGION:s3" -H 'x-amz-content-sha256: UNSIGNED-PAYLOAD' \
			-o "$S3_WORK/answer" -w '%{http_code}' "$@" "$S3_ENDPOINT/$S3_BUCKET$s3_path" 2>"$S3_WORK/error") || {
		echo "$s3_what: $(tr '\n' ' ' <"$S3_WORK/error")" >&2
		return 1
	}
	case $s3_status in
	2??) return 0 ;;
	esac
	s3_code=$(s3_element Code) s3_message=$(s3_element Message)
	echo "$s3_what: S3 answers $s3_status ${s3_code:-without a reason}${s3_message:+: $s3_message}" >&2
	return 1
}

# s3_element prints the first XML element of that name in the answer, as text.
s3_element() {
	tr '\n' ' ' <"$S3_WORK/answer" 2>/dev/null | sed -n "s/.*<$1>\([^<]*\)<\/$1>.*/\1/p" |
		sed "s/&#34;/\"/g; s/&#39;/'/g; s/&quot;/\"/g; s/&apos;/'/g; s/&lt;/</g; s/&gt;/>/g; s/&amp;/\&/g" | head -c 300
}

# s3_path_of encodes what a key may hold as the path that is signed wants it.
s3_path_of() { printf '%s' "$1" | sed 's|=|%3D|g'; }

# s3_get KEY FILE writes an object to a file.
s3_get() {
	s3_request "reading s3://$S3_BUCKET/$1" "/$(s3_path_of "$1")" && mv "$S3_WORK/answer" "$2"
}

# s3_signs_kms fails if curl cannot sign the two headers that a KMS key needs: before 8.10 it sorts them
# wrong, since the name of one is the beginning of the other's (curl's pull request 14370).
s3_signs_kms() {
	s3_curl=$(curl --version | sed -n '1s/^curl \([0-9.]*\).*/\1/p')
	if [ "$(printf '%s\n8.10.0\n' "$s3_curl" | sort -V | head -n 1)" = 8.10.0 ]; then return 0; fi
	echo "curl $s3_curl of this machine cannot sign a request that names a KMS key (8.10 or later can): leave kms_key_id out, and make the key the bucket's default" >&2
	return 1
}

# s3_put KEY FILE keeps a file as an object. S3 compares the content with its digest.
s3_put() {
	[ -z "$S3_KMS_KEY" ] || s3_signs_kms || return 1
	s3_sum=$(openssl dgst -sha256 -binary "$2" | base64) || return 1
	set -- "$1" "$2" -H "x-amz-checksum-sha256: $s3_sum"
	[ -z "$S3_KMS_KEY" ] || set -- "$@" -H 'x-amz-server-side-encryption: aws:kms' -H "x-amz-server-side-encryption-aws-kms-key-id: $S3_KMS_KEY"
	s3_key=$1 s3_file=$2
	shift 2
	s3_request "writing s3://$S3_BUCKET/$s3_key" "/$(s3_path_of "$s3_key")" -T "$s3_file" "$@"
}

# s3_delete KEY deletes an object; that there is none is no failure. S3 answers so itself. Some other
# stores answer 404, also if two machines delete the same object at the same time.
s3_delete() {
	s3_code=''
	s3_request "deleting s3://$S3_BUCKET/$1" "/$(s3_path_of "$1")" -X DELETE 2>"$S3_WORK/undeleted" && return 0
	[ "$s3_code" != NoSuchKey ] || return 0
	cat "$S3_WORK/undeleted" >&2
	return 1
}

# s3_list PREFIX prints the keys that begin so, in order, at most 100000.
s3_list() {
	s3_after='' s3_page=0
	s3_prefix=$(s3_encoded "$1")
	while [ "$s3_page" -lt 100 ]; do
		s3_page=$((s3_page + 1))
		s3_request "listing s3://$S3_BUCKET/$1" "?list-type=2&prefix=$s3_prefix${s3_after:+&start-after=$(s3_encoded "$s3_after")}" || return 1
		tr '<' '\n' <"$S3_WORK/answer" | sed -n 's/^Key>//p' >"$S3_WORK/keys"
		cat "$S3_WORK/keys"
		[ "$(s3_element IsTruncated)" = true ] || return 0
		s3_after=$(tail -n 1 "$S3_WORK/keys")
	done
}

# s3_encoded encodes what a prefix may hold as a query wants it.
s3_encoded() { printf '%s' "$1" | sed 's|/|%2F|g; s|=|%3D|g'; }

# snapshot_names PREFIX FILE prints the snapshots among the keys in a file that count, oldest first: those
# with data and a description. One from the future does not: it comes from a clock that was wrong.
snapshot_names() {
	awk -v prefix="$1" -v limit="$(date -u -d '+15 minutes' +%Y%m%dT%H%M%SZ)" '
		index($0, prefix) != 1 { next }
		{ name = substr($0, length(prefix) + 1) }
		name ~ /^[0-9]+T[0-9]+Z-[0-9]+[.]db$/ { sub(/[.]db$/, "", name); data[name] = 1 }
		name ~ /^[0-9]+T[0-9]+Z-[0-9]+[.]json$/ { sub(/[.]json$/, "", name); described[name] = 1 }
		END { for (name in described) if (name in data && substr(name, 1, 16) <= limit) print name }' "$2" | sort
}
