# shellcheck shell=bash
# For the other scripts to source: a Terraform CLI and a provider built from this tree, ready for init.
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)

# cli prints the path of terraform or tofu, and builds OpenTofu if there is neither.
cli() {
  if [ -n "${TF_ACC_TERRAFORM_PATH:-}" ]; then echo "$TF_ACC_TERRAFORM_PATH"; return; fi
  command -v terraform || command -v tofu || (cd "$root" && go run ./cmd/k8s-lab artifacts --tool tofu)
}

# version is the version of a provider built from this tree.
version=0.1.0

# place DIR builds the provider into the directory of plugins DIR, for terraform and tofu.
place() {
  local platform registry to
  platform=$(go env GOOS)_$(go env GOARCH)
  make --silent -C "$root" build
  for registry in registry.terraform.io registry.opentofu.org; do
    to=$1/$registry/k8s-from-scratch/k8s/$version/$platform
    mkdir -p "$to"
    # A new file, since a running terraform may have the old one open.
    cp "$root/bin/terraform-provider-k8s" "$to/.new"
    mv "$to/.new" "$to/terraform-provider-k8s_v$version"
  done
}

# provider DIR builds the provider into a file-system mirror below DIR and points the CLI to it.
provider() {
  place "$1/mirror"
  cat >"$1/cli.tfrc" <<EOF
disable_checkpoint = true
provider_installation {
  filesystem_mirror {
    path = "$1/mirror"
  }
}
EOF
  export TF_CLI_CONFIG_FILE=$1/cli.tfrc TF_IN_AUTOMATION=1 TF_INPUT=0
}
