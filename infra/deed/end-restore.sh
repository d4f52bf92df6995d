# Ends the restore that made the data of a member: data directory, and the mark of the restore, or "" to
# forget it. A note in the data says then which restore was done. What a restore has made beside the
# data in use is deleted. The functions of restores come first.
set -e
dir=$1 mark=$2 stage=$1/restore
lock
rm -rf "$stage"
if [ ! -d "$dir/member" ]; then exit 0; fi
cd "$dir/member"
if [ -n "$mark" ]; then
	printf '%s\n' "$mark" >restored-done
else
	rm -f restored-done restored-snapshot restored-token
fi
rm -f restored-from
sync -f .
