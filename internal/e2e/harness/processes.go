package harness

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"
)

// Providers returns the ids of this provider's processes that a running CLI has started.
func Providers(t *testing.T, cli int) []int {
	t.Helper()
	entries, err := os.ReadDir("/proc")
	if err != nil {
		t.Fatal(err)
	}
	var found []int
	for _, e := range entries {
		pid, err := strconv.Atoi(e.Name())
		if err != nil {
			continue
		}
		status, err := os.ReadFile(filepath.Join("/proc", e.Name(), "status"))
		if err != nil || !strings.Contains(string(status), fmt.Sprintf("\nPPid:\t%d\n", cli)) {
			continue
		}
		if exe, err := os.Readlink(filepath.Join("/proc", e.Name(), "exe")); err == nil && strings.Contains(filepath.Base(exe), "terraform-provider-k8s") {
			found = append(found, pid)
		}
	}
	return found
}

// Killed starts an apply, and kills the CLI and the provider as soon as it is due.
func (c *Cluster) Killed(t *testing.T, when string, due func() bool, args ...string) {
	t.Helper()
	cmd := c.WS.Command(t.Context(), append([]string{"apply", "-auto-approve", "-no-color"}, args...)...)
	var out bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &out
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	ended := make(chan error, 1)
	go func() { ended <- cmd.Wait() }()
	for !due() {
		select {
		case err := <-ended:
			t.Fatalf("it ended before %s: %v\n%s", when, err, out.String())
		case <-time.After(50 * time.Millisecond):
		}
	}
	providers := Providers(t, cmd.Process.Pid)
	for _, pid := range append([]int{cmd.Process.Pid}, providers...) {
		_ = syscall.Kill(pid, syscall.SIGKILL)
	}
	if err := <-ended; err == nil || len(providers) == 0 {
		t.Errorf("when %s: %v, %d providers", when, err, len(providers))
	}
	_ = os.Remove(filepath.Join(c.WS.Dir, ".terraform.tfstate.lock.info"))
	t.Logf("killed when %s", when)
}
