# Stops etcd and puts its data aside, into "replaced" of the data directory: unit, data directory. What
# was put aside before is deleted.
unit=$1 dir=$2
systemctl stop "$unit" 2>/dev/null || :
if systemctl is-active --quiet "$unit"; then
	echo "$unit does not stop" >&2
	exit 1
fi
if [ ! -d "$dir/member" ]; then exit 0; fi
rm -rf "$dir/replaced"
mv "$dir/member" "$dir/replaced"
