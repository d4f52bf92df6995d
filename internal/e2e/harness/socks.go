package harness

import (
	"bytes"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"golang.org/x/crypto/ssh"
	"golang.org/x/crypto/ssh/knownhosts"
)

// SOCKS starts ssh as a SOCKS proxy behind a machine, until the test ends, and returns its address.
func (s *Suite) SOCKS(t *testing.T, machine, port, hostKey string) string {
	t.Helper()
	free, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	at := free.Addr().String()
	if err := free.Close(); err != nil {
		t.Fatal(err)
	}
	pinned, _, _, _, err := ssh.ParseAuthorizedKey([]byte(hostKey))
	if err != nil {
		t.Fatal(err)
	}
	known := filepath.Join(s.Dir, "known_hosts")
	if err := os.WriteFile(known, []byte(knownhosts.Line([]string{net.JoinHostPort(machine, port)}, pinned)+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	var said bytes.Buffer
	cmd := exec.CommandContext(t.Context(), "ssh", "-F", "none", "-N", "-D", at, "-i", s.SSH, "-o", "IdentitiesOnly=yes", "-o", "BatchMode=yes",
		"-o", "ExitOnForwardFailure=yes", "-o", "UserKnownHostsFile="+known, "-p", port, "admin@"+machine)
	cmd.Stderr = &said
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = cmd.Wait() }) // the test's context has ended it
	Eventually(t, 20*time.Second, "ssh forwards", func() error {
		conn, err := (&net.Dialer{Timeout: time.Second}).DialContext(t.Context(), "tcp", at)
		if err != nil {
			return fmt.Errorf("%w: %s", err, &said)
		}
		return conn.Close()
	})
	return at
}
