#!/usr/bin/env bash
# Checks that every example is formatted and valid, and runs its tests, which only plan.
set -eu
# shellcheck source=scripts/lib.sh
. "$(dirname "$0")/lib.sh"
tmp=$(mktemp -d)
trap 'rm -rf "$tmp"' EXIT
tf=$(cli)
provider "$tmp"
# older_than says whether the CLI is older than a version. Terraform and OpenTofu have imports by identity since 1.12.
older_than() { [ "$(printf '%s\n' "$1" "$("$tf" version -json | sed -n 's/.*"terraform_version": *"\([^"]*\)".*/\1/p')" | sort -V | head -1)" != "$1" ]; }
# by_identity validates the import by identity in place of the one by id.
by_identity() { rm -f import-by-string-id.tf && cp "$dir/import-by-identity.tf" . && "$tf" validate -no-color; }
"$tf" fmt -check -diff -recursive "$root/examples"
mkdir "$tmp/work"
cp -r "$root/examples/modules" "$tmp/work/"
# check validates one example. The work is mostly waiting for plugins, so several are done at a time.
check() {
  dir=$1
  work=$tmp/work/${dir#"$root"/examples/}
  mkdir -p "$work"
  case $dir in */examples/provider) ;; *) cp "$root/examples/ha-cluster/versions.tf" "$work/" ;; esac
  # The examples of single resources, and labs.tf, refer to the cluster of examples/ha-cluster.
  case $dir in */labs | */resources/* | */data-sources/* | */ephemeral-resources/*) cp "$root"/examples/ha-cluster/*.tf "$work/" ;; esac
  find "$dir" -maxdepth 1 \( -name '*.tf' -o -name '*.yaml' \) ! -name import-by-identity.tf -exec cp {} "$work/" \;
  [ ! -d "$dir/tests" ] || cp -r "$dir/tests" "$work/"
  (
    cd "$work"
    "$tf" init -no-color >init.log 2>&1 && "$tf" validate -no-color >validate.log 2>&1 &&
      { [ ! -f "$dir/import-by-identity.tf" ] || older_than 1.12 || by_identity >validate.log 2>&1; } &&
      { [ ! -d tests ] || "$tf" test -no-color >test.log 2>&1; }
  ) || { echo "examples/${dir#"$root"/examples/}:" >&2; cat "$work"/*.log >&2; return 1; }
}
export root tmp tf
export -f check older_than by_identity
find "$root/examples" -name '*.tf' -printf '%h\n' | sort -u | while read -r dir; do
  case $dir in
    */modules/* | */tests/*) continue ;; # the examples that use it validate it, and one work directory has one writer
    */own-machines-libvirt) continue ;; # its providers are not here to validate it
    */actions/*) continue ;; # only Terraform 1.14 and later knows actions
  esac
  echo "$dir"
done | xargs -P 4 -I '{}' bash -euc 'check "{}"'
echo "examples: formatted and valid, and their tests pass"
