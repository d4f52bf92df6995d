# Stops a unit and deletes what it has written: unit, path...
set -e
unit=$1
shift
systemctl stop "$unit" 2>/dev/null || :
rm -rf -- "$@"
for path; do # or a power cut would bring the data back
	[ ! -d "${path%/*}/" ] || sync "${path%/*}/"
done
