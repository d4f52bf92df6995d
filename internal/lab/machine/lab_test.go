package machine

import (
	"context"
	"crypto/ed25519"
	"crypto/rand"
	"encoding/pem"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netns"
	"golang.org/x/crypto/ssh"
	"golang.org/x/sys/unix"
)

// testLab is a network of namespaces round one bridge, with a metadata service
// on it, and a Manager. All of it is gone when the test ends, or the test fails.
type testLab struct {
	*Manager
	t        *testing.T
	stateDir string
	img      Image
	nsDir    string // where network namespaces are pinned
	router   string // path of the namespace with the bridge
	client   ssh.Signer

	mu    sync.Mutex
	hosts map[netip.Addr]*testHost
}

// testHost is what the metadata service knows of a machine.
type testHost struct {
	Spec
	addr     netip.Addr
	hostKey  ssh.PublicKey
	userData string
	requests int
}

func newTestLab(t *testing.T) *testLab {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("needs root")
	}
	img, err := EnsureImage(t.Context(), cacheDir(t), func(s string) { t.Log(s) })
	if err != nil {
		t.Fatal(err)
	}
	l := &testLab{t: t, img: img, hosts: map[netip.Addr]*testHost{}}
	// Not in TMPDIR, which may be a tmpfs too small for a cluster's disks.
	if l.stateDir, err = os.MkdirTemp("/var/tmp", "k8s-lab-machine-test-"); err != nil {
		t.Fatal(err)
	}
	l.client, _ = newKey(t)
	if l.nsDir, err = os.MkdirTemp("", "k8s-lab-netns-"); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := os.Remove(l.nsDir); err != nil {
			t.Error(err)
		}
	})
	l.addNetwork()
	if l.Manager, err = NewManager(l.stateDir, img); err != nil {
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

// inNetns runs f on a thread in the network namespace.
func inNetns(path string, f func() error) error {
	result := make(chan error)
	go func() {
		runtime.LockOSThread() // and never unlocked: the thread ends with the goroutine
		ns, err := netns.GetFromPath(path)
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

func (l *testLab) inNetns(path string, f func() error) {
	l.t.Helper()
	if err := inNetns(path, f); err != nil {
		l.t.Fatalf("in network namespace %s: %v", path, err)
	}
}

// addNetns makes a network namespace and returns the path that it is pinned at,
// which is not in /run/netns to keep out of the way of others that work there.
func (l *testLab) addNetns(name string) string {
	l.t.Helper()
	path := filepath.Join(l.nsDir, name)
	if err := os.WriteFile(path, nil, 0o600); err != nil {
		l.t.Fatal(err)
	}
	result := make(chan error)
	go func() {
		runtime.LockOSThread()
		err := unix.Unshare(unix.CLONE_NEWNET)
		if err == nil {
			err = unix.Mount("/proc/thread-self/ns/net", path, "", unix.MS_BIND, "")
		}
		result <- err
	}()
	if err := <-result; err != nil {
		l.t.Fatal(err)
	}
	l.t.Cleanup(func() {
		if err := errors.Join(unix.Unmount(path, unix.MNT_DETACH), os.Remove(path)); err != nil {
			l.t.Error(err)
		}
	})
	return path
}

func (l *testLab) addNetwork() {
	l.router = l.addNetns("router")
	var listener net.Listener
	l.inNetns(l.router, func() error {
		bridge := &netlink.Bridge{LinkAttrs: netlink.LinkAttrs{Name: "br0"}}
		if err := netlink.LinkAdd(bridge); err != nil {
			return err
		}
		for _, cidr := range []string{"10.99.0.1/24", "169.254.169.254/32"} {
			addr, err := netlink.ParseAddr(cidr)
			if err != nil {
				return err
			}
			if err := netlink.AddrAdd(bridge, addr); err != nil {
				return err
			}
		}
		if err := netlink.LinkSetUp(bridge); err != nil {
			return err
		}
		var err error
		listener, err = (&net.ListenConfig{}).Listen(l.t.Context(), "tcp4", "169.254.169.254:80")
		return err
	})
	server := &http.Server{Handler: http.HandlerFunc(l.metadata), ReadHeaderTimeout: time.Minute}
	go func() { _ = server.Serve(listener) }()
	l.t.Cleanup(func() { _ = server.Close() })
}

// metadata is an EC2 instance metadata service, version 2 only.
func (l *testLab) metadata(w http.ResponseWriter, r *http.Request) {
	from, _ := netip.ParseAddrPort(r.RemoteAddr)
	l.mu.Lock()
	h := l.hosts[from.Addr()]
	if h != nil {
		h.requests++
	}
	l.mu.Unlock()
	if h == nil {
		http.Error(w, "who are you", http.StatusForbidden)
		return
	}
	if r.Method == http.MethodPut && r.URL.Path == "/latest/api/token" && r.Header.Get("X-aws-ec2-metadata-token-ttl-seconds") != "" {
		fmt.Fprint(w, "token-of-"+h.ID)
		return
	}
	if r.Header.Get("X-aws-ec2-metadata-token") != "token-of-"+h.ID {
		http.Error(w, "no token", http.StatusUnauthorized)
		return
	}
	_, path, _ := strings.Cut(strings.TrimPrefix(r.URL.Path, "/"), "/")
	tree := map[string]string{
		"meta-data/":                          "instance-id\nlocal-hostname\npublic-keys/",
		"meta-data/instance-id":               h.ID,
		"meta-data/local-hostname":            h.Hostname + ".ec2.internal",
		"meta-data/public-keys/":              "0=lab",
		"meta-data/public-keys/0/":            "openssh-key",
		"meta-data/public-keys/0/openssh-key": string(ssh.MarshalAuthorizedKey(l.client.PublicKey())),
		"dynamic/instance-identity/":          "document",
		"dynamic/instance-identity/document":  `{"instanceId": "` + h.ID + `", "region": "us-east-1", "availabilityZone": "us-east-1a"}`,
		"user-data":                           h.userData,
	}
	content, ok := tree[path]
	if !ok {
		content, ok = tree[path+"/"]
	}
	if !ok {
		http.NotFound(w, r)
		return
	}
	fmt.Fprint(w, content)
}

// add makes a host, but does not start it. extra is appended to its cloud-config.
func (l *testLab) add(extra string) *testHost {
	l.t.Helper()
	n := len(l.hosts) + 10
	h := &testHost{addr: netip.AddrFrom4([4]byte{10, 99, 0, byte(n)})}
	h.Spec = Spec{
		ID:       fmt.Sprintf("i-%08x%09x", os.Getpid(), n),
		Hostname: fmt.Sprintf("ip-10-99-0-%d", n),
		Netns:    l.addNetns(strconv.Itoa(n)),
	}
	l.inNetns(l.router, func() error {
		ns, err := netns.GetFromPath(h.Netns)
		if err != nil {
			return err
		}
		defer ns.Close()
		bridge, err := netlink.LinkByName("br0")
		if err != nil {
			return err
		}
		veth := &netlink.Veth{
			LinkAttrs: netlink.LinkAttrs{Name: fmt.Sprintf("m%d", n), MasterIndex: bridge.Attrs().Index},
			PeerName:  "eth0", PeerNamespace: netlink.NsFd(ns),
		}
		if err := netlink.LinkAdd(veth); err != nil {
			return err
		}
		return netlink.LinkSetUp(veth)
	})
	l.inNetns(h.Netns, func() error {
		for _, cfg := range []struct{ link, addr string }{{"lo", ""}, {"eth0", h.addr.String() + "/24"}} {
			link, err := netlink.LinkByName(cfg.link)
			if err != nil {
				return err
			}
			if cfg.addr != "" {
				addr, err := netlink.ParseAddr(cfg.addr)
				if err != nil {
					return err
				}
				if err := netlink.AddrAdd(link, addr); err != nil {
					return err
				}
			}
			if err := netlink.LinkSetUp(link); err != nil {
				return err
			}
		}
		return netlink.RouteAdd(&netlink.Route{Gw: net.IPv4(10, 99, 0, 1)})
	})
	signer, private := newKey(l.t)
	h.hostKey = signer.PublicKey()
	h.userData = "#cloud-config\nssh_keys:\n  ed25519_private: |\n    " +
		strings.ReplaceAll(strings.TrimSpace(private), "\n", "\n    ") +
		"\n  ed25519_public: " + string(ssh.MarshalAuthorizedKey(h.hostKey)) + extra
	l.mu.Lock()
	defer l.mu.Unlock()
	l.hosts[h.addr] = h
	return h
}

func (l *testLab) start(h *testHost) {
	l.t.Helper()
	if err := l.Start(l.t.Context(), h.Spec); err != nil {
		l.t.Fatal(err)
	}
}

// dial logs in once, checking the host key.
func (l *testLab) dial(h *testHost, user string) (*ssh.Client, error) {
	var conn net.Conn
	err := inNetns(l.router, func() (err error) {
		conn, err = (&net.Dialer{Timeout: time.Second}).DialContext(l.t.Context(), "tcp", h.addr.String()+":22")
		return err
	})
	if err != nil {
		return nil, err
	}
	// A machine that dies leaves its connections hanging.
	_ = conn.SetDeadline(time.Now().Add(time.Minute))
	c, chans, reqs, err := ssh.NewClientConn(conn, h.addr.String(), &ssh.ClientConfig{
		User: user, Auth: []ssh.AuthMethod{ssh.PublicKeys(l.client)},
		HostKeyCallback: ssh.FixedHostKey(h.hostKey),
	})
	if err != nil {
		_ = conn.Close()
		return nil, err
	}
	return ssh.NewClient(c, chans, reqs), nil
}

// await returns when the machine lets admin in.
func (l *testLab) await(h *testHost) *ssh.Client {
	l.t.Helper()
	deadline := time.Now().Add(40 * time.Second)
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

func must(t *testing.T, c *ssh.Client, script string) string {
	t.Helper()
	out, err := run(c, script)
	if err != nil {
		t.Fatalf("%s\n%v", script, err)
	}
	return out
}

// awaitExit waits for the news that the machine went down.
func (l *testLab) awaitExit(id string) {
	l.t.Helper()
	select {
	case got := <-l.Exits():
		if got != id {
			l.t.Fatalf("exit of %s reported, want %s", got, id)
		}
	case <-time.After(30 * time.Second):
		l.t.Fatalf("exit of %s not reported", id)
	}
}
