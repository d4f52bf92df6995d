package machine

import (
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"

	"github.com/k8s-from-scratch/terraform-provider-k8s/internal/lab/cache"
)

func TestPreflight(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("needs root")
	}
	if _, err := Preflight(t.Context(), cache.DefaultDir(), Container); err != nil {
		t.Errorf("Preflight where the other tests run: %v", err)
	}

	t.Setenv("PATH", t.TempDir())
	_, err := Preflight(t.Context(), t.TempDir(), Container)
	if err == nil {
		t.Fatal("Preflight without any program succeeds")
	}
	for _, advice := range []string{"apt-get install systemd-container", "apt-get install debootstrap", "apt-get install nftables", "apt-get install lxcfs"} {
		if !strings.Contains(err.Error(), advice) {
			t.Errorf("Preflight without any program: %v; want %q in it", err, advice)
		}
	}
	if _, err := Preflight(t.Context(), cache.DefaultDir(), Container); strings.Contains(err.Error(), "debootstrap") {
		t.Errorf("Preflight asks for debootstrap though there is an image: %v", err)
	}
}

func TestPreflightWithoutRoot(t *testing.T) {
	if os.Getenv("PREFLIGHT_AS_NOBODY") != "" {
		_, err := Preflight(t.Context(), t.TempDir(), Container)
		if err == nil || !strings.Contains(err.Error(), "sudo") {
			t.Errorf("Preflight without root = %v, want advice", err)
		}
		return
	}
	if os.Geteuid() != 0 {
		t.Skip("needs root")
	}
	// The directory of the test binary may not be readable for other users.
	bin := "/proc/self/fd/3"
	exe, err := os.Open("/proc/self/exe")
	if err != nil {
		t.Fatal(err)
	}
	defer exe.Close()
	cmd := exec.CommandContext(t.Context(), bin, "-test.run=^TestPreflightWithoutRoot$")
	cmd.Dir = "/"
	cmd.ExtraFiles = []*os.File{exe}
	cmd.Env = append(os.Environ(), "PREFLIGHT_AS_NOBODY=1", "TMPDIR=/tmp")
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: 65534, Gid: 65534}}
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Errorf("%v: %s", err, out)
	}
}
