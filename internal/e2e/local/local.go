// Package local runs real etcd members, a real kube-apiserver and a real kube-controller-manager as
// processes on loopback, for tests of the packages that talk to them. There are no machines and no containers, and nothing is
// faked.
package local

import (
	"context"
	"crypto/rand"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/pki"
	"github.com/k8s-from-scratch/terraform-provider-k8s/internal/lab/release"
	"github.com/k8s-from-scratch/terraform-provider-k8s/internal/progress"
)

// stopTimeout is how long a process may take to exit before it is killed.
const stopTimeout = 10 * time.Second

// pollInterval is how often a server is asked whether it is ready.
const pollInterval = 100 * time.Millisecond

// Mirror returns the directory of the artifact mirror, and completes it if necessary.
func Mirror(t *testing.T) string {
	t.Helper()
	dir, err := release.EnsureMirror(t.Context(), release.Options{Progress: progress.To(func(s string) { t.Log(s) })})
	if err != nil {
		t.Fatal(err)
	}
	return dir
}

// EtcdProgram unpacks etcd from the mirror.
func EtcdProgram(t *testing.T) string {
	t.Helper()
	name := "etcd-" + release.EtcdVersion + "-linux-amd64"
	archive := filepath.Join(Mirror(t), "github.com/etcd-io/etcd/releases/download/"+release.EtcdVersion, name+".tar.gz")
	to := filepath.Join(t.TempDir(), "etcd")
	if err := release.UnpackProgram(archive, path.Join(name, "etcd"), to); err != nil {
		t.Fatal(err)
	}
	return to
}

// KubernetesProgram returns the path of a program of Kubernetes in the mirror.
func KubernetesProgram(t *testing.T, name string) string {
	t.Helper()
	return filepath.Join(Mirror(t), "dl.k8s.io/release/"+release.KubernetesVersion+"/bin/linux/amd64", name)
}

// PKI holds a cluster's authorities and keys in memory.
type PKI struct {
	Ref   pki.Ref
	Store pki.Store
	dir   string
}

// NewPKI creates a cluster's authorities and keys.
func NewPKI(t *testing.T) PKI {
	t.Helper()
	store := pki.NewMemoryStore(nil)
	ref, err := pki.Bootstrap(t.Context(), store, "local", time.Now(), rand.Reader, pki.Options{Store: pki.StoreSSM})
	if err != nil {
		t.Fatal(err)
	}
	return PKI{Ref: ref, Store: store, dir: t.TempDir()}
}

// Existing returns a cluster's authorities and keys that exist already, with their keys in the
// reference.
func Existing(t *testing.T, ref pki.Ref) PKI {
	t.Helper()
	return PKI{Ref: ref, Store: ref.MemoryStore(), dir: t.TempDir()}
}

// Issue issues a certificate.
func (p PKI) Issue(t *testing.T, ca pki.CAName, r pki.Request) pki.KeyPair {
	t.Helper()
	key, err := p.Store.Get(t.Context(), p.Ref.IssuingKey(ca))
	if err != nil {
		t.Fatal(err)
	}
	a, err := pki.LoadAuthority(pki.KeyPair{CertPEM: []byte(p.Ref.Bundle(ca)), KeyPEM: key})
	if err != nil {
		t.Fatal(err)
	}
	pair, err := a.Issue(r, time.Now(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	return pair
}

// files writes a certificate and its key and returns their paths.
func (p PKI) files(t *testing.T, name string, ca pki.CAName, r pki.Request) (cert, key string) {
	t.Helper()
	pair := p.Issue(t, ca, r)
	return p.file(t, name+".crt", pair.CertPEM), p.file(t, name+".key", pair.KeyPEM)
}

func (p PKI) file(t *testing.T, name string, content []byte) string {
	t.Helper()
	path := filepath.Join(p.dir, name)
	if err := os.WriteFile(path, content, 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// Process is a running program. It is stopped when the test ends at the latest.
type Process struct {
	cmd  *exec.Cmd
	done chan struct{}
	log  string
}

// start runs a program. Its output is logged if the test fails.
func start(t *testing.T, name, program string, args ...string) *Process {
	t.Helper()
	log := filepath.Join(t.TempDir(), name+".log")
	out, err := os.Create(log)
	if err != nil {
		t.Fatal(err)
	}
	defer out.Close()
	p := &Process{cmd: exec.CommandContext(context.Background(), program, args...), done: make(chan struct{}), log: log}
	p.cmd.Stdout, p.cmd.Stderr = out, out
	p.cmd.Env = []string{"PATH=/usr/bin:/bin"}
	// If the test itself is killed, the process must not survive it.
	p.cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	if err := p.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	go func() {
		_ = p.cmd.Wait() // its log says how it ended
		close(p.done)
	}()
	t.Cleanup(func() {
		p.Stop()
		if t.Failed() {
			t.Logf("end of the log of %s:\n%s", name, tail(log))
		}
	})
	return p
}

// Stop ends the process.
func (p *Process) Stop() {
	_ = p.cmd.Process.Signal(syscall.SIGTERM)
	select {
	case <-p.done:
	case <-time.After(stopTimeout):
		_ = p.cmd.Process.Kill()
		<-p.done
	}
}

func tail(path string) string {
	b, err := os.ReadFile(path)
	if err != nil {
		return err.Error()
	}
	lines := strings.Split(strings.TrimSpace(string(b)), "\n")
	return strings.Join(lines[max(0, len(lines)-30):], "\n")
}

// freePort returns a port on which nothing listens at the moment.
func freePort(t *testing.T) int {
	t.Helper()
	l, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	return l.Addr().(*net.TCPAddr).Port
}

var loopback = []netip.Addr{netip.MustParseAddr("127.0.0.1")}
