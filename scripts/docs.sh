#!/usr/bin/env bash
# Generates docs/ from the provider's schemas, examples/ and templates/. It needs no Terraform CLI.
# Usage: docs.sh TFPLUGINDOCS
set -eu
cd "$(dirname "$0")/.."
tmp=$(mktemp -d)
trap 'rm -rf "$tmp"' EXIT
go run ./internal/docs >"$tmp/schema.json"
"$1" generate --provider-name k8s --providers-schema "$tmp/schema.json" >"$tmp/docs.log" 2>&1 || { cat "$tmp/docs.log" >&2; exit 1; }
go run ./internal/soak guide
go run ./internal/pages
