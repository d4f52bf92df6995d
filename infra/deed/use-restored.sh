# Puts the data that were made beside those of a member in their place: data directory, mark of the
# restore, snapshot, unit. It stops the unit first, and starts nothing. Data that were there before are
# in "replaced-<time>" of the data directory afterwards. The functions of restores come first.
# shellcheck disable=SC2034 # the functions read these
dir=$1 mark=$2 name=$3 stage=$1/restore unit=$4

lock
if same "$dir/member"; then
	rm -rf "$stage"
	exit 0
fi
same "$stage/member" || failed "there are no restored data in $stage: apply again"
trap '' HUP INT TERM # between the two moves there would be no data
end_unit "$unit"
if from "$dir/member"; then
	rm -rf "$dir/member"
else
	put_aside || exit 1
fi
mv "$stage/member" "$dir/member" || exit 1
rm -rf "$stage"
sync -f "$dir"
