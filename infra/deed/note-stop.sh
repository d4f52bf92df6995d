# Notes units that are about to be stopped for a while, so that whoever comes next knows
# that they are to run: file, unit...
set -eu
file=$1
shift
mkdir -p "${file%/*}"
printf '%s\n' "$@" >"$file.new"
sync "$file.new"
mv -f "$file.new" "$file"
sync "${file%/*}"
