#!/usr/bin/env bash
# Builds the archives of a release of this tree, and their checksums, into dist/. It publishes nothing.
# GPG_FINGERPRINT names the key that signs the checksums; without it nothing is signed.
# Usage: release.sh GORELEASER
set -eu
cd "$(dirname "$0")/.."
skip=()
[ -n "${GPG_FINGERPRINT:-}" ] || skip=(--skip=sign)
"$1" release --snapshot --clean "${skip[@]}"
# A registry gets the manifest under the name that the checksums have.
sums=$(echo dist/*_SHA256SUMS)
cp terraform-registry-manifest.json "${sums%SHA256SUMS}manifest.json"
echo "The archives are in dist/; sha256sum -c checks them there."
