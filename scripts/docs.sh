#!/usr/bin/env bash
# Generates docs/ from the provider's schema, examples/ and templates/. Usage: docs.sh TFPLUGINDOCS
set -eu
. "$(dirname "$0")/lib.sh"
tmp=$(mktemp -d)
trap 'rm -rf "$tmp"' EXIT
tf=$(cli)
provider "$tmp"
mkdir "$tmp/work"
cp "$root/examples/ha-cluster/versions.tf" "$tmp/work/"
cd "$tmp/work"
"$tf" init -no-color >"$tmp/init.log" 2>&1 || { cat "$tmp/init.log" >&2; exit 1; }
# OpenTofu names its own registry; the generator looks for Terraform's.
"$tf" providers schema -json | sed 's#registry\.opentofu\.org/k8s-from-scratch#registry.terraform.io/k8s-from-scratch#g' >"$tmp/schema.json"
cd "$root"
"$1" generate --provider-name k8s --providers-schema "$tmp/schema.json" >"$tmp/docs.log" 2>&1 || { cat "$tmp/docs.log" >&2; exit 1; }
