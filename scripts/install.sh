#!/usr/bin/env bash
# Installs the provider for this user, where terraform and tofu look for providers without a registry.
# https://developer.hashicorp.com/terraform/cli/config/config-file#implied-local-mirror-directories
set -eu
# shellcheck source=scripts/lib.sh
. "$(dirname "$0")/lib.sh"
: "${HOME:?is not set: the provider is installed below it}"
place "$HOME/.terraform.d/plugins"
echo "Installed the provider k8s-from-scratch/k8s $version in $HOME/.terraform.d/plugins, for terraform and tofu, and the commands in $root/bin."
echo "A directory that was initialised with an earlier build knows its checksum: remove .terraform.lock.hcl there, and run init again."
