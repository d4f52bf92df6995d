# Keeps snapshots of etcd in S3: "etcd-backup run|take|before|newest". It follows the functions for
# S3, and reads /etc/etcd-backup/config.
#
#   run     what the timer calls: sends what waits in the spool, takes a snapshot if one is due, and
#           deletes what is too many or too old. The members are ranked: one takes a snapshot only
#           if those before it have let it become overdue, or if it could not take its last one.
#   take    takes a snapshot now, and prints its description. It is no success before S3 has it.
#   before  the same before a change of the cluster, unless BEFORE_CHANGES is "no".
#   newest  prints what is known, a line each: "failed <why>" if the last run did, "at <where>",
#           "newest <description>" of the newest good snapshot there, "count <how many>"; "unknown
#           <why>" if the bucket cannot be read. It changes nothing.
#
# A snapshot counts when it was verified: etcdutl has read it whole, and has restored it into a
# directory that is deleted again.
set -u
umask 077
# shellcheck source=/dev/null
. /etc/etcd-backup/config
dir=$DIR

failed() {
	echo "$1" >&2
	exit 1
}

# reason prints why the last program of etcd failed: the line with its error, and not the trace behind.
reason() { grep -m 1 -E '^(panic|fatal error|unexpected fault|Error)' "$work/said" || tail -n 1 "$work/said"; }

# field prints the value of a field of one line of JSON.
field() { printf '%s\n' "$2" | sed -n "s/.*\"$1\" *: *\"\{0,1\}\([^\",}]*\).*/\1/p"; }

ask_etcd() {
	etcdctl --endpoints "$ETCD" --cacert "$ETCD_CA" --cert "$ETCD_CERT" --key "$ETCD_KEY" --dial-timeout 5s --command-timeout 10s "$@"
}

# etcd_status prints the member's status. One that has just been started may need a moment to answer.
etcd_status() {
	for pause in 5 5 5 0; do
		ask_etcd endpoint status -w json 2>"$work/said" >"$work/status" && cat "$work/status" && return
		case $(systemctl is-active etcd.service) in
		activ*) sleep $pause ;;
		*) break ;;
		esac
	done
	return 1
}

# seconds prints the time in the name of a snapshot, in seconds since 1970.
seconds() {
	printf '%s\n' "$1" | sed 's/^\(....\)\(..\)\(..\)T\(..\)\(..\)\(..\)Z.*/\1-\2-\3 \4:\5:\6 UTC/' | date -u -f - +%s
}

is_name() { printf '%s\n' "$1" | grep -Eqx '[0-9]{8}T[0-9]{6}Z-[0-9]+'; }

# take makes a verified snapshot in the spool and sets name. While it has not, there is a file "taking".
take() {
	: >"$work/said"
	: >"$dir/taking"
	tidy
	status=$(etcd_status) || failed "asking etcd for its status: $(reason)"
	case $status in *CORRUPT*) failed "etcd has the alarm CORRUPT: a snapshot would push out a sound one" ;; esac
	# Beside the snapshot there is room for its restored copy, and for etcd to go on.
	need=$(($(field dbSize "$status") * 2 / 1024 + 262144))
	free=$(df -Pk "$dir" | awk 'NR == 2 { print $4 }')
	[ "$free" -ge "$need" ] || failed "no room for a snapshot: $dir has $free KiB free, and $need KiB are needed"
	id=$(ask_etcd member list -w json --hex 2>"$work/said") || failed "asking etcd for its members: $(reason)"
	sleep "$RANK" # members that begin at the same time give their snapshots different names
	at=$(date -u +%Y%m%dT%H%M%SZ)
	ask_etcd --command-timeout 15m snapshot save "$work/db" >/dev/null 2>"$work/said" || failed "taking a snapshot: $(reason)"
	seen=$(etcdutl snapshot status "$work/db" -w json 2>"$work/said") || failed "reading the snapshot: $(reason)"
	etcdutl snapshot restore "$work/db" --data-dir "$work/restored" >/dev/null 2>"$work/said" || failed "restoring the snapshot for a trial: $(reason)"
	again=$(etcdutl snapshot status "$work/restored/member/snap/db" -w json 2>"$work/said") || failed "reading the restored snapshot: $(reason)"
	rm -rf "$work/restored"
	revision=$(field revision "$seen")
	before="revision $revision and $(field totalKey "$seen") keys" after="revision $(field revision "$again") and $(field totalKey "$again") keys"
	[ "$before" = "$after" ] || failed "restored for a trial, the snapshot has $after, and not $before"
	name=$at-$revision
	keys=$(sed 's/^\([^ ]*\) \(.*\)$/{"name":"\1","sha256":"\2"}/' "$ENCRYPTION_KEYS" | tr '\n' ',')
	printf '{"format":1,"name":"%s","time":"%s","cluster":"%s","etcd_cluster_id":"%s","etcd_version":"%s","member":"%s","revision":%s,"keys":%s,"hash":"%x","size":%s,"sha256":"%s","encryption_keys":[%s]}\n' \
		"$name" "$(date -u -d "@$(seconds "$name")" +%Y-%m-%dT%H:%M:%SZ)" "$CLUSTER" "$(field cluster_id "$id")" "$(field version "$status")" "$MEMBER" \
		"$revision" "$(field totalKey "$seen")" "$(field hash "$seen")" "$(stat -c %s "$work/db")" "$(sha256sum "$work/db" | cut -d' ' -f1)" "${keys%,}" >"$work/json"
	sync "$work/db" "$work/json"
	mv "$work/db" "$dir/spool/$name.db" || failed "keeping the snapshot in $dir/spool"
	mv "$work/json" "$dir/spool/$name.json" || failed "keeping the snapshot in $dir/spool"
	rm -f "$dir/taking"
}

# spooled prints the snapshots that wait for S3, oldest first. One from the future is deleted.
spooled() {
	soon=$(date -u -d '+15 minutes' +%Y%m%dT%H%M%SZ)
	for spool_file in "$dir"/spool/*.json; do
		[ -e "$spool_file" ] || continue
		spool_name=$(basename "$spool_file" .json)
		if [ "$(printf '%s\n%s\n' "${spool_name%-*}" "$soon" | sort | head -n 1)" = "${spool_name%-*}" ]; then
			echo "$spool_name"
		else
			rm -f "$spool_file" "${spool_file%.json}.db"
		fi
	done | sort
}

# send puts a snapshot of the spool into the bucket; the description comes last.
send() {
	s3_put "$PREFIX$1.db" "$dir/spool/$1.db" && s3_put "$PREFIX$1.json" "$dir/spool/$1.json" && rm -f "$dir/spool/$1.db" "$dir/spool/$1.json"
}

# tidy keeps the three newest snapshots of the spool, and nothing that was interrupted.
tidy() {
	spooled | head -n -3 | while read -r name; do rm -f "$dir/spool/$name.db" "$dir/spool/$name.json"; done
	for spool_file in "$dir"/spool/*.db; do
		[ ! -e "$spool_file" ] || [ -e "${spool_file%.db}.json" ] || rm -f "$spool_file"
	done
}

# prune deletes snapshots that are too many or too old, never the newest, and at most 100 at a time. It
# does not touch or count those of another etcd cluster: it may be the one that is to be restored. The
# description goes first, so that nothing without data counts. Data without a description are deleted
# after a day.
prune() {
	snapshot_names "$PREFIX" "$work/keys" >"$work/names"
	touch "$dir/others"
	count=$(grep -Fvxc -f "$dir/others" "$work/names") now=$(date +%s) pruned=0
	own=$(field cluster_id "$(ask_etcd member list -w json --hex 2>/dev/null)")
	[ -n "$own" ] || return 0
	head -n -1 "$work/names" | grep -Fvx -f "$dir/others" | while read -r name; do
		[ "$count" -gt "$KEEP" ] || [ $((now - $(seconds "$name"))) -gt "$KEEP_FOR" ] || break
		[ "$pruned" -lt 100 ] || break
		count=$((count - 1)) pruned=$((pruned + 1)) s3_status=''
		if ! s3_get "$PREFIX$name.json" "$work/old" 2>"$work/gone"; then
			[ "$s3_status" = 404 ] && continue # another member has just deleted it
			cat "$work/gone" >&2
			exit 1
		fi
		if [ "$(field etcd_cluster_id "$(cat "$work/old")")" != "$own" ]; then
			echo "$name" >>"$dir/others"
			continue
		fi
		s3_delete "$PREFIX$name.json" || exit 1
		s3_delete "$PREFIX$name.db" || exit 1
	done || return 1
	sed -n "s|^$PREFIX\([0-9TZ-]*\)\.db\$|\1|p" "$work/keys" | while read -r name; do
		if is_name "$name" && ! grep -Fqx "$PREFIX$name.json" "$work/keys" && [ $((now - $(seconds "$name"))) -gt 86400 ]; then
			s3_delete "$PREFIX$name.db" || exit 1
		fi
	done
}

run() {
	newest='' trouble=''
	if s3_list "$PREFIX" >"$work/keys" 2>"$work/trouble"; then
		newest=$(snapshot_names "$PREFIX" "$work/keys" | tail -n 1)
		for name in $(spooled); do
			send "$name" 2>"$work/trouble" || {
				trouble=$(cat "$work/trouble")
				break
			}
			newest=$(printf '%s\n%s\n' "$newest" "$name" | sort | tail -n 1)
		done
		if [ -n "$newest" ]; then echo "$newest" >"$dir/newest"; fi
	else
		trouble=$(cat "$work/trouble")
		newest=$(cat "$dir/newest" 2>/dev/null; spooled)
		newest=$(printf '%s\n' "$newest" | sort | tail -n 1)
	fi
	# A check may come half its distance too early, so that the interval is kept and not exceeded.
	if [ -z "$newest" ] || [ -e "$dir/taking" ] || [ $(($(date +%s) - $(seconds "$newest"))) -ge $((INTERVAL - CHECK / 2 + RANK * CHECK)) ]; then
		take
		if [ -z "$trouble" ]; then
			send "$name" 2>"$work/trouble" || trouble=$(cat "$work/trouble")
		fi
		if [ -z "$trouble" ]; then echo "$name" >"$dir/newest"; fi
	fi
	if [ -z "$trouble" ]; then { s3_list "$PREFIX" >"$work/keys" && prune; } 2>"$work/trouble" || trouble=$(cat "$work/trouble"); fi
	tidy
	[ -z "$trouble" ] || failed "$trouble"
}

take_now() {
	take
	cp "$dir/spool/$name.json" "$work/description"
	send "$name" || failed "the snapshot $name waits in $dir/spool"
	echo "$name" >"$dir/newest"
	cat "$work/description"
}

newest() {
	export S3_QUICK=yes # somebody waits
	if [ -s "$dir/failed" ]; then echo "failed $(tr '\n' ' ' <"$dir/failed")"; fi
	echo "at s3://$S3_BUCKET/$PREFIX"
	if ! s3_list "$PREFIX" >"$work/keys"; then return 1; fi
	snapshot_names "$PREFIX" "$work/keys" >"$work/names"
	name=$(tail -n 1 "$work/names")
	if [ -n "$name" ]; then
		s3_get "$PREFIX$name.json" "$work/description" || return 1
		echo "newest $(tr -d '\n' <"$work/description")"
	fi
	echo "count $(wc -l <"$work/names")"
}

[ "$1" != before ] || [ "$BEFORE_CHANGES" = yes ] || exit 0
mkdir -p "$dir/spool"
work=$(mktemp -d "$dir/work.XXXXXX") || exit 1
export S3_WORK="$work"
trap 'rm -rf "$work"' EXIT
trap 'exit 1' HUP INT TERM
if [ "$1" = newest ]; then
	newest 2>"$work/why" || echo "unknown $(tr '\n' ' ' <"$work/why")"
	exit 0
fi
exec 9>"$dir/lock"
flock -w 600 9 || failed "another run of etcd-backup has not ended within 10 minutes"
find "$dir" -maxdepth 1 -name 'work.*' ! -path "$work" -mmin +60 -exec rm -rf {} +
# What failed stays to be seen until it succeeds: a snapshot that this member could not take, until it
# takes one, also when another member's is new enough.
(
	trap - EXIT
	case $1 in
	run) run ;;
	*) take_now ;;
	esac
) 2>"$work/why"
result=$?
cat "$work/why" >&2
if [ $result = 0 ]; then
	[ -e "$dir/taking" ] || rm -f "$dir/failed"
else
	{ date -u +%Y-%m-%dT%H:%M:%SZ && cat "$work/why"; } >"$dir/failed"
fi
exit $result
