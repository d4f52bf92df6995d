#!/usr/bin/env bash
# Checks that every example is formatted and valid, and runs its tests, which only plan.
set -eu
# shellcheck source=scripts/lib.sh
. "$(dirname "$0")/lib.sh"
tmp=$(mktemp -d)
trap 'rm -rf "$tmp"' EXIT
tf=$(cli)
provider "$tmp"
"$tf" fmt -check -diff -recursive "$root/examples"
mkdir "$tmp/work"
cp -r "$root/examples/modules" "$tmp/work/"
find "$root/examples" -name '*.tf' -printf '%h\n' | sort -u | while read -r dir; do
  case $dir in
    */modules/*) continue ;; # the examples that use it validate it
    */own-machines-libvirt) continue ;; # its providers are not here to validate it
  esac
  work=$tmp/work/${dir#"$root"/examples/}
  mkdir -p "$work"
  case $dir in */examples/provider) ;; *) cp "$root/examples/ha-cluster/versions.tf" "$work/" ;; esac
  # The examples of single resources refer to the cluster of examples/ha-cluster.
  case $dir in */resources/* | */data-sources/* | */ephemeral-resources/*) cp "$root"/examples/ha-cluster/*.tf "$work/" ;; esac
  cp "$dir"/*.tf "$work/"
  [ ! -d "$dir/tests" ] || cp -r "$dir/tests" "$work/"
  (
    cd "$work"
    "$tf" init -no-color >init.log 2>&1 && "$tf" validate -no-color >validate.log 2>&1 &&
      { [ ! -d tests ] || "$tf" test -no-color >test.log 2>&1; }
  ) || { echo "examples/${dir#"$root"/examples/}:" >&2; cat "$work"/*.log >&2; exit 1; }
done
echo "examples: formatted and valid, and their tests pass"
