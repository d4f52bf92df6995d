// Package hostengine tests packages remote and host against a real machine: Debian with systemd,
// sshd and cloud-init, as the local EC2 runs them.
package hostengine

import (
	"cmp"
	"context"
	"net"
	"net/http"
	"os"
	"path"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/crypto/ssh"

	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/desired"
	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/host"
	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/remote"
	"github.com/k8s-from-scratch/terraform-provider-k8s/internal/lab/cache"
	"github.com/k8s-from-scratch/terraform-provider-k8s/internal/lab/machine"
	"github.com/k8s-from-scratch/terraform-provider-k8s/internal/lab/testbed"
	"github.com/k8s-from-scratch/terraform-provider-k8s/internal/progress"
)

// realMachine is one machine, with a download mirror on this computer.
type realMachine struct {
	*remote.Machine
	t       *testing.T
	manager *machine.Manager
	spec    machine.Spec
	network *testbed.Network
	mirror  string // host and port
	trips   atomic.Int32
	dials   atomic.Int32

	mu       sync.Mutex
	files    map[string][]byte
	truncate map[string]bool
	slow     time.Duration
	trouble  http.HandlerFunc // if set, answers in place of the package archive
}

// release returns the Debian release that is booted: the lab's default, or that of K8S_E2E_DEBIAN.
func release(t *testing.T) machine.Release {
	t.Helper()
	asked := cmp.Or(os.Getenv("K8S_E2E_DEBIAN"), machine.Releases[0].Version)
	i := slices.IndexFunc(machine.Releases, func(r machine.Release) bool { return r.Version == asked })
	if i < 0 {
		t.Fatalf("there is no image of Debian %q", asked)
	}
	return machine.Releases[i]
}

func boot(t *testing.T) *realMachine {
	t.Helper()
	if os.Getuid() != 0 {
		t.Skip("needs root")
	}
	img, err := machine.EnsureImage(t.Context(), cache.DefaultDir(), release(t), machine.Container, progress.To(func(s string) { t.Log(s) }))
	if err != nil {
		t.Fatal(err)
	}
	m := &realMachine{t: t, network: testbed.New(t), files: map[string][]byte{}, truncate: map[string]bool{}}
	m.startMirror()
	state, err := os.MkdirTemp("/var/tmp", "hostengine-test-") // TMPDIR may be a small tmpfs
	if err != nil {
		t.Fatal(err)
	}
	m.manager, err = machine.NewManager(state, machine.Container, []machine.Image{img})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
		defer cancel()
		if err := m.manager.Down(ctx); err != nil {
			t.Error(err)
		}
		if err := os.RemoveAll(state); err != nil {
			t.Error(err)
		}
	})
	m.start(machine.Spec{Image: img.ID})
	return m
}

// start starts a machine with a host key of its own, which the connection expects.
func (m *realMachine) start(spec machine.Spec) {
	m.t.Helper()
	h := m.network.Add("")
	spec.ID, spec.Hostname, spec.Netns, spec.VCPUs, spec.Cores, spec.MemoryMiB = h.ID, h.Hostname, h.Netns, 2, 1, 2048
	m.spec = spec
	if err := m.manager.Start(m.t.Context(), m.spec); err != nil {
		m.t.Fatal(err)
	}
	pool := remote.NewPool(remote.Config{Signers: []ssh.Signer{m.network.Key}, Dial: m.dial})
	m.t.Cleanup(func() { _ = pool.Close() })
	m.Machine = pool.Machine(remote.Host{Name: h.Hostname, Address: h.Address.String(), User: "admin", HostKeys: []string{testbed.AuthorizedKey(h.HostKey)}})
	m.awaitReady()
}

func (m *realMachine) awaitReady() {
	m.t.Helper()
	ctx, cancel := context.WithTimeout(m.t.Context(), 3*time.Minute)
	defer cancel()
	start := time.Now()
	if err := m.WaitReady(ctx, 0); err != nil {
		console, _ := os.ReadFile(m.manager.Console(m.spec.ID))
		m.t.Fatalf("%v\n%s", err, console)
	}
	m.t.Logf("ready after %s", time.Since(start))
}

// Run runs a command and counts the round trips.
func (m *realMachine) Run(ctx context.Context, c remote.Command) (remote.Output, error) {
	m.trips.Add(1)
	return m.Machine.Run(ctx, c)
}

func (m *realMachine) dial(ctx context.Context, network, addr string) (net.Conn, error) {
	m.dials.Add(1)
	return new(net.Dialer).DialContext(ctx, network, addr)
}

func (m *realMachine) startMirror() {
	m.t.Helper()
	m.mirror = net.JoinHostPort(m.network.Operator().String(), "8080")
	l, err := new(net.ListenConfig).Listen(m.t.Context(), "tcp4", m.mirror)
	if err != nil {
		m.t.Fatal(err)
	}
	server := &http.Server{Handler: http.HandlerFunc(m.serve), ReadHeaderTimeout: time.Minute}
	go func() { _ = server.Serve(l) }()
	m.t.Cleanup(func() { _ = server.Close() })
}

func (m *realMachine) serve(w http.ResponseWriter, r *http.Request) {
	r.URL.Path = path.Clean(r.URL.Path) // apt asks for ./Packages
	m.mu.Lock()
	content, ok := m.files[r.URL.Path]
	cut, slow, trouble := m.truncate[r.URL.Path], m.slow, m.trouble
	m.mu.Unlock()
	if trouble != nil && strings.HasPrefix(r.URL.Path, archivePath) {
		trouble(w, r)
		return
	}
	if !ok {
		http.NotFound(w, r)
		return
	}
	time.Sleep(slow)
	if cut {
		w.Header().Set("Content-Length", "1000000")
		_, _ = w.Write(content)
		_ = http.NewResponseController(w).Flush()
		panic(http.ErrAbortHandler)
	}
	_, _ = w.Write(content)
}

// offer adds a file to the mirror.
func (m *realMachine) offer(path string, content []byte) (url, digest string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.files[path] = content
	return "http://" + m.mirror + path, desired.Sum(content)
}

// sh runs a script as root and returns its output.
func (m *realMachine) sh(script string) string {
	m.t.Helper()
	out, err := m.Machine.Run(m.t.Context(), remote.Command{Script: "set -e\n" + script, Sudo: true})
	if err != nil {
		m.t.Fatalf("%s\n%v", script, err)
	}
	return strings.TrimSpace(string(out.Stdout))
}

func (m *realMachine) observe(want desired.State, rec host.Record) host.Observation {
	m.t.Helper()
	obs, err := host.Observe(m.t.Context(), m, want, rec)
	if err != nil {
		m.t.Fatal(err)
	}
	return obs
}

func (m *realMachine) diff(want desired.State, rec host.Record) []host.Change {
	m.t.Helper()
	return host.Diff(want, m.observe(want, rec), rec)
}

// converge observes, compares and applies. It fails the test unless the machine has no drift
// afterwards.
func (m *realMachine) converge(want desired.State, rec host.Record) host.Record {
	m.t.Helper()
	rec, err := host.Apply(m.t.Context(), m, want, m.diff(want, rec), rec, host.Options{})
	if err != nil {
		m.t.Fatal(err)
	}
	if left := m.diff(want, rec); len(left) > 0 {
		m.t.Fatalf("not as wanted after apply: %s", host.Words(left))
	}
	return rec
}
