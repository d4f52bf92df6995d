package machine

import (
	"context"
	"fmt"
	"net"
	"os"
	"strings"
	"testing"
	"time"

	"golang.org/x/crypto/ssh"

	"github.com/k8s-from-scratch/terraform-provider-k8s/internal/lab/cache"
	"github.com/k8s-from-scratch/terraform-provider-k8s/internal/lab/testbed"
	"github.com/k8s-from-scratch/terraform-provider-k8s/internal/progress"
)

// testLab is a Manager and a network for its machines. The test fails if anything of it is left at
// its end.
type testLab struct {
	*Manager
	t        *testing.T
	network  *testbed.Network
	stateDir string
	img      Image
	patience time.Duration // how long a login may take, and a boot if that is longer than two minutes
}

// testHost is a machine with what is needed to start and reach it.
type testHost struct {
	Spec
	address string // of its SSH server
	hostKey ssh.PublicKey
}

func newTestLab(t *testing.T, r Release) *testLab { return newTestLabOf(t, r, Container) }

func newTestLabOf(t *testing.T, r Release, kind Kind) *testLab {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("needs root")
	}
	img, err := EnsureImage(t.Context(), cache.DefaultDir(), r, kind, progress.To(func(s string) { t.Log(s) }))
	if err != nil {
		t.Fatal(err)
	}
	l := &testLab{t: t, img: img, network: testbed.New(t), patience: time.Minute}
	// TMPDIR may be a tmpfs that is too small for the disks of a cluster.
	if l.stateDir, err = os.MkdirTemp("/var/tmp", "k8s-lab-machine-test-"); err != nil {
		t.Fatal(err)
	}
	if l.Manager, err = NewManager(l.stateDir, kind, []Image{img}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
		defer cancel()
		if err := l.Down(ctx); err != nil {
			t.Error(err)
		}
		left, err := Leftovers(l.stateDir)
		if err != nil || len(left) > 0 {
			t.Errorf("left behind: %v %v", left, err)
		}
		if err := os.RemoveAll(l.stateDir); err != nil {
			t.Error(err)
		}
	})
	return l
}

// add makes a host, but does not start it. cloudConfig is appended to its user data.
func (l *testLab) add(cloudConfig string) *testHost {
	l.t.Helper()
	h := l.network.Add(cloudConfig)
	return &testHost{Spec: Spec{ID: h.ID, Image: l.img.ID, Hostname: h.Hostname, Netns: h.Netns, VCPUs: 2, Cores: 1, MemoryMiB: 2048, InstalledMiB: 2176, Type: "t3.small", Root: Volume{ID: "vol-" + strings.Repeat("0", 16) + "1", SizeGiB: 8}}, address: h.Address.String() + ":22", hostKey: h.HostKey}
}

func (l *testLab) start(h *testHost) {
	l.t.Helper()
	if err := l.Start(l.t.Context(), h.Spec); err != nil {
		l.t.Fatal(err)
	}
}

// dial logs in once, checking the host key.
func (l *testLab) dial(h *testHost, user string) (*ssh.Client, error) {
	ctx, cancel := context.WithTimeout(l.t.Context(), time.Second)
	defer cancel()
	conn, err := new(net.Dialer).DialContext(ctx, "tcp", h.address)
	if err != nil {
		return nil, err
	}
	// Connections to a machine that dies hang.
	_ = conn.SetDeadline(time.Now().Add(l.patience))
	c, chans, reqs, err := ssh.NewClientConn(conn, h.address, &ssh.ClientConfig{
		User: user, Auth: []ssh.AuthMethod{ssh.PublicKeys(l.network.Key)},
		HostKeyCallback:   ssh.FixedHostKey(h.hostKey),
		HostKeyAlgorithms: []string{h.hostKey.Type()}, // some images have keys of other types, too
	})
	if err != nil {
		_ = conn.Close()
		return nil, err
	}
	_ = conn.SetDeadline(time.Now().Add(10 * time.Minute))
	return ssh.NewClient(c, chans, reqs), nil
}

// await returns when admin can log in to the machine.
func (l *testLab) await(h *testHost) *ssh.Client {
	l.t.Helper()
	deadline := time.Now().Add(max(2*time.Minute, l.patience))
	for {
		c, err := l.dial(h, "admin")
		if err == nil {
			l.t.Cleanup(func() { _ = c.Close() })
			return c
		}
		if time.Now().After(deadline) {
			console, _ := os.ReadFile(l.Console(h.ID))
			l.t.Fatalf("no SSH to %s: %v\n%s", h.ID, err, console)
		}
		time.Sleep(10 * time.Millisecond)
	}
}

// run runs a script with sudo and returns its output.
func run(c *ssh.Client, script string) (string, error) {
	s, err := c.NewSession()
	if err != nil {
		return "", err
	}
	defer s.Close()
	s.Stdin = strings.NewReader(script)
	out, err := s.CombinedOutput("sudo sh -eu")
	if err != nil {
		err = fmt.Errorf("%w: %s", err, out)
	}
	return strings.TrimSpace(string(out)), err
}

// end runs a script that ends the machine.
func end(c *ssh.Client, script string) {
	defer time.AfterFunc(time.Minute, func() { _ = c.Close() }).Stop()
	_, _ = run(c, script)
}

func must(t *testing.T, c *ssh.Client, script string) string {
	t.Helper()
	out, err := run(c, script)
	if err != nil {
		t.Fatalf("%s\n%v", script, err)
	}
	return out
}

// awaitExit waits until the machine's exit is reported, and returns whether it is to boot again.
func (l *testLab) awaitExit(id string) (reboot bool) {
	l.t.Helper()
	select {
	case got := <-l.Exits():
		if got.ID != id {
			l.t.Fatalf("exit of %s reported, want %s", got.ID, id)
		}
		return got.Reboot
	case <-time.After(2 * time.Minute):
		l.t.Fatalf("exit of %s not reported", id)
	}
	return false
}
