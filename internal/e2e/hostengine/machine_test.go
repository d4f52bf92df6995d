// Package hostengine tests packages remote and host against a real machine:
// Debian with systemd, sshd and cloud-init, as the local EC2 runs them.
package hostengine

import (
	"context"
	"crypto/ed25519"
	"crypto/rand"
	"encoding/pem"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"net/netip"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netns"
	"golang.org/x/crypto/ssh"
	"golang.org/x/sys/unix"

	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/desired"
	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/host"
	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/remote"
	"github.com/k8s-from-scratch/terraform-provider-k8s/internal/lab/machine"
	"github.com/k8s-from-scratch/terraform-provider-k8s/internal/lab/metadata"
)

const (
	address  = "10.99.0.10"
	vpc      = "10.99.0.0/16"
	resolver = "10.99.0.2"
)

// realMachine is one machine in a network of its own, with the metadata
// service, the resolver and a download mirror on addresses next to its own.
type realMachine struct {
	*remote.Machine
	t       *testing.T
	manager *machine.Manager
	spec    machine.Spec
	pool    *remote.Pool
	netns   string
	trips   atomic.Int32
	dials   atomic.Int32

	mu       sync.Mutex
	files    map[string][]byte
	truncate map[string]bool
	slow     time.Duration
}

func boot(t *testing.T) *realMachine {
	t.Helper()
	if os.Getuid() != 0 {
		t.Skip("needs root")
	}
	img, err := machine.EnsureImage(t.Context(), cacheDir(), func(s string) { t.Log(s) })
	if err != nil {
		t.Fatal(err)
	}
	m := &realMachine{t: t, files: map[string][]byte{}, truncate: map[string]bool{}}
	client, _ := newKey(t)
	hostKey, hostPEM := newKey(t)
	m.addNetwork(metadata.Instance{
		PrivateIP: netip.MustParseAddr(address), PrivateName: "ip-10-99-0-10.ec2.internal", Region: "us-east-1", Zone: "us-east-1a",
		VPCCIDR: netip.MustParsePrefix(vpc), Enabled: true, TokenRequired: true, HopLimit: 1,
		KeyName: "test", PublicKey: authorizedKey(client),
		ID: fmt.Sprintf("i-%08x%09x", os.Getpid(), 0xe),
		UserData: []byte("#cloud-config\nssh_keys:\n  ed25519_private: |\n    " +
			strings.ReplaceAll(strings.TrimSpace(hostPEM), "\n", "\n    ") +
			"\n  ed25519_public: " + authorizedKey(hostKey) + "\n"),
	})
	state, err := os.MkdirTemp("/var/tmp", "hostengine-test-") // TMPDIR may be a small tmpfs
	if err != nil {
		t.Fatal(err)
	}
	m.manager, err = machine.NewManager(state, img)
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
	m.spec = machine.Spec{ID: fmt.Sprintf("i-%08x%09x", os.Getpid(), 0xe), Hostname: "real-0", Netns: m.netns,
		Nameserver: netip.MustParseAddr(resolver)}
	if err := m.manager.Start(t.Context(), m.spec); err != nil {
		t.Fatal(err)
	}
	m.pool = remote.NewPool(remote.Config{Signers: []ssh.Signer{client}, Dial: m.dial})
	t.Cleanup(func() { _ = m.pool.Close() })
	m.Machine = m.pool.Machine(remote.Host{Name: "real-0", Address: address, User: "admin", HostKeys: []string{authorizedKey(hostKey)}})
	m.awaitReady()
	return m
}

func (m *realMachine) awaitReady() {
	m.t.Helper()
	ctx, cancel := context.WithTimeout(m.t.Context(), time.Minute)
	defer cancel()
	start := time.Now()
	if err := m.WaitReady(ctx, 0); err != nil {
		console, _ := os.ReadFile(m.manager.Console(m.spec.ID))
		m.t.Fatalf("%v\n%s", err, console)
	}
	m.t.Logf("ready after %s", time.Since(start))
}

// Run counts the round trips.
func (m *realMachine) Run(ctx context.Context, c remote.Command) (remote.Output, error) {
	m.trips.Add(1)
	return m.Machine.Run(ctx, c)
}

func (m *realMachine) dial(ctx context.Context, network, addr string) (conn net.Conn, err error) {
	m.dials.Add(1)
	err = m.inside(func() error {
		conn, err = (&net.Dialer{}).DialContext(ctx, network, addr)
		return err
	})
	return conn, err
}

// inside runs f on a thread in the machine's network.
func (m *realMachine) inside(f func() error) error {
	result := make(chan error)
	go func() {
		runtime.LockOSThread() // and never unlocked: the thread ends with the goroutine
		ns, err := netns.GetFromPath(m.netns)
		if err == nil {
			err = netns.Set(ns)
			_ = ns.Close()
		}
		if err == nil {
			err = f()
		}
		result <- err
	}()
	return <-result
}

func (m *realMachine) addNetwork(i metadata.Instance) {
	t := m.t
	t.Helper()
	m.netns = filepath.Join(t.TempDir(), "netns")
	if err := os.WriteFile(m.netns, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	result := make(chan error)
	go func() {
		runtime.LockOSThread()
		err := unix.Unshare(unix.CLONE_NEWNET)
		if err == nil {
			err = unix.Mount("/proc/thread-self/ns/net", m.netns, "", unix.MS_BIND, "")
		}
		result <- err
	}()
	if err := <-result; err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := unix.Unmount(m.netns, unix.MNT_DETACH); err != nil {
			t.Error(err)
		}
	})
	if err := m.inside(addresses); err != nil {
		t.Fatal(err)
	}
	servers := metadata.New(oneInstance(i), m, slog.New(slog.DiscardHandler))
	if err := servers.Sync(t.Context(), map[string]netip.Prefix{"vpc-1": i.VPCCIDR}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(servers.Close)
	l, err := m.ListenTCP(t.Context(), "", address+":8080")
	if err != nil {
		t.Fatal(err)
	}
	mirror := &http.Server{Handler: http.HandlerFunc(m.serve), ReadHeaderTimeout: time.Minute}
	go func() { _ = mirror.Serve(l) }()
	t.Cleanup(func() { _ = mirror.Close() })
}

func addresses() error {
	lo, err := netlink.LinkByName("lo")
	if err != nil {
		return err
	}
	if err := netlink.LinkSetUp(lo); err != nil {
		return err
	}
	// All traffic is local; the other end only makes it a link that is up.
	eth0 := &netlink.Veth{LinkAttrs: netlink.LinkAttrs{Name: "eth0"}, PeerName: "peer0"}
	if err := netlink.LinkAdd(eth0); err != nil {
		return err
	}
	for _, cidr := range []string{address + "/24", resolver + "/32", "169.254.169.254/32"} {
		addr, err := netlink.ParseAddr(cidr)
		if err != nil {
			return err
		}
		if err := netlink.AddrAdd(eth0, addr); err != nil {
			return err
		}
	}
	return netlink.LinkSetUp(eth0)
}

// ListenTCP and ListenUDP make the machine's network one that the metadata
// service can serve.
func (m *realMachine) ListenTCP(ctx context.Context, _, addr string) (l net.Listener, err error) {
	err = m.inside(func() error { l, err = (&net.ListenConfig{}).Listen(ctx, "tcp4", addr); return err })
	return l, err
}

func (m *realMachine) ListenUDP(ctx context.Context, _, addr string) (c net.PacketConn, err error) {
	err = m.inside(func() error { c, err = (&net.ListenConfig{}).ListenPacket(ctx, "udp4", addr); return err })
	return c, err
}

// oneInstance is a metadata.Source: whoever asks is this instance.
type oneInstance metadata.Instance

func (i oneInstance) InstanceAt(string, netip.Addr) (metadata.Instance, bool) {
	return metadata.Instance(i), true
}

func (i oneInstance) PrivateOf(string, netip.Addr) (netip.Addr, bool) { return netip.Addr{}, false }

func (m *realMachine) serve(w http.ResponseWriter, r *http.Request) {
	m.mu.Lock()
	content, ok := m.files[r.URL.Path]
	cut, slow := m.truncate[r.URL.Path], m.slow
	m.mu.Unlock()
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

// offer puts a file on the mirror.
func (m *realMachine) offer(path string, content []byte) (url, digest string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.files[path] = content
	return "http://" + address + ":8080" + path, desired.Sum(content)
}

// sh runs a script as root and returns what it printed.
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

// converge observes, compares and applies, and fails the test unless the
// machine is as wanted afterwards.
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

func newKey(t *testing.T) (ssh.Signer, string) {
	t.Helper()
	_, private, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	signer, err := ssh.NewSignerFromKey(private)
	if err != nil {
		t.Fatal(err)
	}
	block, err := ssh.MarshalPrivateKey(private, "")
	if err != nil {
		t.Fatal(err)
	}
	return signer, string(pem.EncodeToMemory(block))
}

func authorizedKey(s ssh.Signer) string {
	return strings.TrimSpace(string(ssh.MarshalAuthorizedKey(s.PublicKey())))
}

func cacheDir() string {
	if dir := os.Getenv("K8S_LAB_CACHE"); dir != "" {
		return dir
	}
	dir, err := os.UserCacheDir()
	if err != nil {
		return "/var/cache/k8s-lab"
	}
	return filepath.Join(dir, "k8s-lab")
}
