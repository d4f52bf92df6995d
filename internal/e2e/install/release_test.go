package install_test

import (
	"archive/zip"
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/k8s-from-scratch/terraform-provider-k8s/internal/e2e/account"
	"github.com/k8s-from-scratch/terraform-provider-k8s/internal/workspace"
)

const archive = "terraform-provider-k8s_" + workspace.Version + "_"

// TestRelease makes a release, checks that it is what a registry wants, and installs from its
// archives with Terraform and with OpenTofu. It builds the provider for eight platforms, so only
// `make soak PART=release` runs it.
func TestRelease(t *testing.T) {
	if os.Getenv("K8S_RELEASE") == "" {
		t.Skip("K8S_RELEASE is not set: make soak PART=release")
	}
	fingerprint, gnupg := signingKey(t)
	if out, err := command(t, root, append(os.Environ(), "GNUPGHOME="+gnupg, "GPG_FINGERPRINT="+fingerprint), "make", "release"); err != nil {
		t.Fatalf("make release: %v\n%s", err, out)
	}
	dist, err := filepath.Abs(root + "/dist")
	if err != nil {
		t.Fatal(err)
	}
	checkSums(t, dist)
	checkArchives(t, dist)
	if out, err := command(t, dist, append(os.Environ(), "GNUPGHOME="+gnupg), "gpg", "--verify", archive+"SHA256SUMS.sig", archive+"SHA256SUMS"); err != nil {
		t.Errorf("the signature: %v\n%s", err, out)
	}
	for _, cli := range both(t) {
		t.Run(filepath.Base(cli), func(t *testing.T) { installArchives(t, dist, cli) })
	}
	t.Logf("figures: %d archives, installed with Terraform and OpenTofu", len(platforms))
}

// platforms are those for which a release has an archive.
var platforms = []string{
	"darwin_amd64", "darwin_arm64", "freebsd_amd64", "freebsd_arm64", "linux_amd64", "linux_arm64", "windows_amd64", "windows_arm64",
}

// signingKey makes a key that signs nothing else. It returns its fingerprint and GnuPG's directory.
func signingKey(t *testing.T) (fingerprint, dir string) {
	t.Helper()
	dir, err := os.MkdirTemp("", "gnupg") // GnuPG's socket needs a short path
	if err != nil {
		t.Fatal(err)
	}
	env := append(os.Environ(), "GNUPGHOME="+dir)
	t.Cleanup(func() {
		_ = exec.Command("gpgconf", "--homedir", dir, "--kill", "all").Run() //nolint:noctx // t.Context has ended
		_ = os.RemoveAll(dir)
	})
	for _, args := range [][]string{
		{"--batch", "--passphrase", "", "--quick-generate-key", "release-test@example.invalid", "ed25519", "sign", "1d"},
		{"--batch", "--with-colons", "--list-secret-keys"},
	} {
		out, err := command(t, dir, env, "gpg", args...)
		if err != nil {
			t.Fatalf("gpg %s: %v\n%s", strings.Join(args, " "), err, out)
		}
		for line := range strings.Lines(out) { // fpr:::::::::FINGERPRINT:
			if f := strings.Split(line, ":"); f[0] == "fpr" && len(f) > 9 {
				return f[9], dir
			}
		}
	}
	t.Fatal("gpg made no key")
	return "", ""
}

// checkSums checks that the checksums are those of every archive and of the manifest.
func checkSums(t *testing.T, dist string) {
	t.Helper()
	sums, err := os.ReadFile(filepath.Join(dist, archive+"SHA256SUMS"))
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for line := range strings.Lines(string(sums)) {
		sum, name, _ := strings.Cut(strings.TrimSpace(line), "  ")
		names = append(names, name)
		content, err := os.ReadFile(filepath.Join(dist, name))
		if err != nil {
			t.Error(err)
			continue
		}
		if got := sha256.Sum256(content); hex.EncodeToString(got[:]) != sum {
			t.Errorf("%s: the sum is %x, SHA256SUMS says %s", name, got, sum)
		}
	}
	want := []string{archive + "manifest.json"}
	for _, p := range platforms {
		want = append(want, archive+p+".zip")
	}
	slices.Sort(names)
	if slices.Sort(want); !slices.Equal(names, want) {
		t.Errorf("SHA256SUMS has %q, want %q", names, want)
	}
}

// checkArchives checks that each archive has the program under the name that Terraform looks for.
func checkArchives(t *testing.T, dist string) {
	t.Helper()
	for _, p := range platforms {
		name := "terraform-provider-k8s_v" + workspace.Version
		if strings.HasPrefix(p, "windows") {
			name += ".exe"
		}
		r, err := zip.OpenReader(filepath.Join(dist, archive+p+".zip"))
		if err != nil {
			t.Error(err)
			continue
		}
		if !slices.ContainsFunc(r.File, func(f *zip.File) bool { return f.Name == name && f.Mode()&0o111 != 0 }) {
			t.Errorf("%s: there is no program %s", p, name)
		}
		_ = r.Close()
	}
}

// installArchives lays the archives out as a mirror and plans the example with what is installed
// from there (developer.hashicorp.com/terraform/cli/config/config-file, "packed layout").
func installArchives(t *testing.T, dist, cli string) {
	t.Helper()
	mirror := t.TempDir()
	for _, registry := range []string{"registry.terraform.io", "registry.opentofu.org"} {
		dir := filepath.Join(mirror, registry, "k8s-from-scratch", "k8s")
		if err := os.MkdirAll(dir, 0o755); err != nil {
			t.Fatal(err)
		}
		for _, p := range platforms {
			if err := os.Symlink(filepath.Join(dist, archive+p+".zip"), filepath.Join(dir, archive+p+".zip")); err != nil {
				t.Fatal(err)
			}
		}
	}
	home, work := newHome(t), t.TempDir()
	if err := workspace.CopyConfig(root+"/examples/ha-cluster", work); err != nil {
		t.Fatal(err)
	}
	config := "provider_installation {\n  filesystem_mirror {\n    path = \"" + mirror + "\"\n  }\n}\n"
	if err := os.WriteFile(filepath.Join(home, "mirror.tfrc"), []byte(config), 0o600); err != nil {
		t.Fatal(err)
	}
	out := run(t, account.New(t), home, work, cli, `export TF_CLI_CONFIG_FILE=$HOME/mirror.tfrc AWS_REGION=us-east-1 AWS_PROFILE=mine K8S_SSH_PRIVATE_KEY_FILE=$HOME/.ssh/id_ed25519
terraform init -no-color
terraform providers lock -fs-mirror=`+mirror+` -platform=darwin_arm64 -platform=windows_amd64
terraform plan -no-color -var 'admin_cidrs=["198.51.100.7/32"]'`)
	for _, want := range []string{"k8s-from-scratch/k8s v" + workspace.Version, "successfully initialized", "k8s_machine.controller[2] will be created"} {
		if !strings.Contains(out, want) {
			t.Errorf("%q is missing in\n%s", want, out)
		}
	}
	lock, err := os.ReadFile(filepath.Join(work, ".terraform.lock.hcl"))
	if err != nil || !bytes.Contains(lock, []byte(`version = "`+workspace.Version+`"`)) {
		t.Errorf("the lock file: %v\n%s", err, lock)
	}
}
