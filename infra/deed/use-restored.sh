# Puts the data that were made beside those of a member in their place: unit, data directory, mark of
# the restore, snapshot. It stops the unit first, and starts nothing. Data that were there before are
# in "replaced" of the data directory afterwards, until the next restore.
unit=$1 dir=$2 mark=$3 name=$4
stage=$dir/restore

failed() {
	echo "$1" >&2
	exit 1
}
from() { [ "$(cat "$1/restored-from" 2>/dev/null)" = "$mark" ]; }
same() { from "$1" && [ "$(cat "$1/restored-snapshot" 2>/dev/null)" = "$name" ]; }

exec 9>/run/etcd-restore.lock
flock -w 600 9 || failed "another restore on this machine has not ended within 10 minutes"
if same "$dir/member"; then
	rm -rf "$stage"
	exit 0
fi
same "$stage/member" || failed "there are no restored data in $stage: apply again"
trap '' HUP INT TERM # between the two moves there would be no data
systemctl stop "$unit" 2>/dev/null || :
if systemctl is-active --quiet "$unit"; then failed "$unit does not stop"; fi
if from "$dir/member"; then
	rm -rf "$dir/member"
elif [ -d "$dir/member" ]; then
	rm -rf "$dir/replaced"
	mv "$dir/member" "$dir/replaced" || exit 1
fi
mv "$stage/member" "$dir/member" || exit 1
rm -rf "$stage"
sync -f "$dir"
