package drift_test

import (
	"os"
	"testing"
)

// testPrepared checks that roles have installed nothing on machines of the prepared image, and that two such
// machines share no identity.
func (w *world) testPrepared(t *testing.T) {
	if os.Getenv("K8S_E2E_DEBIAN") != "" {
		t.Skip("the machines are Debian's")
	}
	var downloads map[string]int
	if err := suite.Control(t.Context(), "GET", "/_lab/mirror", nil, &downloads); err != nil {
		t.Fatal(err)
	}
	if len(downloads) > 0 {
		t.Errorf("downloaded, although the image has it: %v", downloads)
	}
	var outside struct{ Archive []any }
	if err := suite.Control(t.Context(), "GET", "/_lab/outside", nil, &outside); err != nil {
		t.Fatal(err)
	}
	if len(outside.Archive) > 0 {
		t.Errorf("the archive of packages was asked: %v", outside.Archive)
	}
	for _, script := range []string{
		"cat /etc/machine-id", "cat /etc/ssh/ssh_host_ed25519_key.pub", "hostname", "cat /var/lib/systemd/random-seed 2>/dev/null | sha256sum; cat /proc/sys/kernel/random/boot_id",
		"cat /var/lib/containerd/io.containerd.grpc.v1.introspection/uuid", "ls /etc/ssh/ssh_host_*; cat /etc/ssh/ssh_host_*.pub",
	} {
		if a, b := w.Sh(t, "worker-0", script), w.Sh(t, "worker-1", script); a == b {
			t.Errorf("%s: both workers have %s", script, a)
		}
	}
}
