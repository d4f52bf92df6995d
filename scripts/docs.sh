#!/usr/bin/env bash
# Generates docs/ from the provider's schema, examples/ and templates/. Usage: docs.sh TFPLUGINDOCS
set -eu
# shellcheck source=scripts/lib.sh
. "$(dirname "$0")/lib.sh"
tmp=$(mktemp -d)
trap 'rm -rf "$tmp"' EXIT
tf=$(cli)
provider "$tmp"
mkdir "$tmp/work"
cp "$root/examples/ha-cluster/versions.tf" "$tmp/work/"
cd "$tmp/work"
"$tf" init -no-color >"$tmp/init.log" 2>&1 || { cat "$tmp/init.log" >&2; exit 1; }
# The generator looks for the provider under this name only.
"$tf" providers schema -json | sed 's#registry\.[a-z]*\.\(io\|org\)/k8s-from-scratch/k8s#registry.terraform.io/hashicorp/k8s#g' >"$tmp/schema.json"
cd "$root"
"$1" generate --provider-name k8s --providers-schema "$tmp/schema.json" >"$tmp/docs.log" 2>&1 || { cat "$tmp/docs.log" >&2; exit 1; }
go run ./internal/soak guide
go run ./internal/pages
