package deed

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/remote"
)

// sshServer is a machine whose files of sshd are in a directory. settings is what sshd -T prints there.
func sshServer(dir, settings string) Runner {
	return runnerFunc(func(ctx context.Context, cmd remote.Command) (remote.Output, error) {
		script := "systemctl() { :; }\nsshd() { printf '%s' '" + settings + "'; }\n" +
			strings.NewReplacer("/etc/ssh", dir, "/etc/systemd/system", dir, "/dev/console", filepath.Join(dir, "console")).Replace(cmd.Script)
		out, err := exec.CommandContext(ctx, "sh", "-c", script).Output()
		return remote.Output{Stdout: out}, err
	})
}

// launched makes the keys that cloud-init has written, and returns the public ones.
func launched(t *testing.T, dir string, types ...string) (public []string) {
	t.Helper()
	for _, typ := range types {
		file := filepath.Join(dir, "ssh_host_"+typ+"_key")
		if out, err := exec.CommandContext(t.Context(), "ssh-keygen", "-q", "-t", typ, "-N", "", "-C", "launch", "-f", file).CombinedOutput(); err != nil {
			t.Fatalf("%v: %s", err, out)
		}
		content, err := os.ReadFile(file + ".pub")
		if err != nil {
			t.Fatal(err)
		}
		public = append(public, strings.Join(strings.Fields(string(content))[:2], " "))
	}
	return public
}

// TestHostKeyType: a machine's own host key is of a type that its sshd offers, and the only one that is left. What is
// interrupted continues with the same key.
func TestHostKeyType(t *testing.T) {
	const files = "hostkey /etc/ssh/ssh_host_rsa_key\nhostkey /etc/ssh/ssh_host_ecdsa_key\n"
	const algorithms = "hostkeyalgorithms ecdsa-sha2-nistp256,rsa-sha2-512"
	for name, tt := range map[string]struct{ settings, want string }{
		"Debian":                {files + "hostkey /etc/ssh/ssh_host_ed25519_key\n" + algorithms + ",ssh-ed25519\n", "ed25519"},
		"FIPS":                  {files + "hostkey /etc/ssh/ssh_host_ed25519_key\n" + algorithms + "\n", "ecdsa"},
		"HostKey":               {files + algorithms + ",ssh-ed25519\n", "ecdsa"},
		"no answer":             {"", "ed25519"},
		"certificates only":     {files + "hostkey /etc/ssh/ssh_host_ed25519_key\n" + algorithms + ",ssh-ed25519-cert-v01@openssh.com\n", "ecdsa"},
		"neither is recognised": {"hostkey /etc/keys/a\n" + algorithms + "\n", "ed25519"},
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			launch := launched(t, dir, "ed25519", "ecdsa")
			if err := os.WriteFile(filepath.Join(dir, "ssh_host_rsa_key"), []byte("left over"), 0o600); err != nil {
				t.Fatal(err)
			}
			m := sshServer(dir, tt.settings)
			key, err := PrepareHostKey(t.Context(), m, launch)
			if err != nil || slices.Contains(launch, key) || !strings.Contains(strings.Fields(key)[0], tt.want) {
				t.Fatalf("prepared %q: %v", key, err)
			}
			if again, err := PrepareHostKey(t.Context(), m, launch); err != nil || again != key {
				t.Errorf("prepared again %q, and before %q: %v", again, key, err)
			}
			for range 2 { // the second time as after an interruption
				if err := SwitchHostKey(t.Context(), m, key); err != nil {
					t.Fatal(err)
				}
				own := filepath.Join(dir, "ssh_host_"+tt.want+"_key")
				if left, _ := filepath.Glob(filepath.Join(dir, "ssh_host_*")); !slices.Equal(left, []string{own, own + ".pub"}) {
					t.Errorf("left: %q", left)
				}
				if again, err := PrepareHostKey(t.Context(), m, launch); err != nil || again != key {
					t.Errorf("prepared afterwards %q, and before %q: %v", again, key, err)
				}
			}
			if printed, err := os.ReadFile(filepath.Join(dir, "console")); err != nil || !strings.Contains(string(printed), "the SSH host key is SHA256:") {
				t.Errorf("printed %q: %v", printed, err)
			}
		})
	}
}

// TestHostKeyOfOthers: a key of a type that the machine was not launched with is not adopted.
func TestHostKeyOfOthers(t *testing.T) {
	dir := t.TempDir()
	all := launched(t, dir, "ed25519", "ecdsa")
	key, err := PrepareHostKey(t.Context(), sshServer(dir, ""), all[:1])
	if err != nil || slices.Contains(all, key) || !strings.HasPrefix(key, "ssh-ed25519 ") {
		t.Errorf("prepared %q: %v", key, err)
	}
}

// TestHostKeyTypeChanges: an sshd that offered ed25519 when the key was made, and offers it no more at the switch, as
// after a reboot into FIPS, gets a key that it offers.
func TestHostKeyTypeChanges(t *testing.T) {
	dir := t.TempDir()
	launch := launched(t, dir, "ed25519", "ecdsa")
	if _, err := PrepareHostKey(t.Context(), sshServer(dir, ""), launch); err != nil {
		t.Fatal(err)
	}
	m := sshServer(dir, "hostkey /etc/ssh/ssh_host_ecdsa_key\nhostkeyalgorithms ecdsa-sha2-nistp256\n")
	key, err := PrepareHostKey(t.Context(), m, launch)
	if err == nil {
		err = SwitchHostKey(t.Context(), m, key)
	}
	if err != nil || !strings.HasPrefix(key, "ecdsa-") {
		t.Fatalf("%q: %v", key, err)
	}
	if left, _ := filepath.Glob(filepath.Join(dir, "ssh_host_*")); len(left) != 2 {
		t.Errorf("left: %q", left)
	}
}
