#!/usr/bin/env bash
# Fails when a package outgrows its room: more than 30 Go files or 90 exported names, tests not counted. A
# package that is larger has its own numbers here. Lower them when it shrinks, and cut it before they grow.
set -euo pipefail
cd "$(dirname "$0")/.."

declare -A room=( # files and exported names
	[infra/component]="43 153"      # one file a program, and every name of a file or unit on machines
	[infra/finding]="3 174"         # every kind and problem of a difference is a constant
	[internal/lab/cloud/ec2]="59 26" # one file a group of EC2's actions; the account's quotas by name
)

exported() { # counts exported functions, types, variables and constants of a package, not methods and fields
	awk 'FNR == 1 { block = 0 }
		/^(func|type|var|const) [A-Z]/ { n++ }
		/^(var|const|type) \($/ { block = 1; next }
		/^\)/ { block = 0 }
		block && /^\t[A-Z][A-Za-z0-9_]*( |,|$)/ { n++ }
		END { print n + 0 }' "$@"
}

failed=0
while read -r dir; do
	mapfile -t files < <(find "$dir" -maxdepth 1 -name '*.go' ! -name '*_test.go' 2>/dev/null)
	((${#files[@]})) || continue # it has been moved, and the index does not know yet
	read -r most names <<<"${room[$dir]:-30 90}"
	has=$(exported "${files[@]}")
	if ((${#files[@]} > most || has > names)); then
		echo "$dir has ${#files[@]} files and $has exported names; its room is for $most and $names (scripts/rooms.sh)"
		failed=1
	fi
done < <(git ls-files -co --exclude-standard '*/*.go' | grep -v -e _test.go -e ^internal/e2e/ | sed 's|/[^/]*$||' | sort -u)
exit $failed
