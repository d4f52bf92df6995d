# Runs commands, each of which must succeed, and asks dpkg whether a package is not fully installed: commands, one an argument. It
# changes nothing.
set -eu
failed=
for command; do
	# shellcheck disable=SC2086 # a program and its arguments
	if ! said=$(timeout 30 $command </dev/null 2>&1); then
		echo "$command: $(printf '%s' "$said" | head -n 3)" >&2
		failed=1
	fi
done
if command -v dpkg >/dev/null; then
	said=$(dpkg --audit 2>&1) || failed=1
	if [ -n "$said" ]; then
		echo "dpkg --audit: $said" >&2
		failed=1
	fi
fi
[ -z "$failed" ]
