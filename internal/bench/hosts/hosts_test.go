package hosts

import (
	"context"
	"crypto/ed25519"
	"crypto/rand"
	"encoding/pem"
	"fmt"
	"net"
	"net/netip"
	"os"
	"strings"
	"testing"

	"golang.org/x/crypto/ssh"

	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/deed"
	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/desired"
	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/host"
	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/remote"
)

func TestMain(m *testing.M) {
	if os.Getuid() != 0 {
		fmt.Println("skipped: needs root for namespaces")
		return
	}
	inside, err := Enter(context.Background(), "198.51.100.0/24")
	if inside {
		os.Exit(m.Run())
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

// key returns a new private key in PEM and its public key in authorized_keys form.
func key(t *testing.T) (private, public string, signer ssh.Signer) {
	t.Helper()
	_, k, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	block, err := ssh.MarshalPrivateKey(k, "")
	if err != nil {
		t.Fatal(err)
	}
	if signer, err = ssh.NewSignerFromKey(k); err != nil {
		t.Fatal(err)
	}
	return string(pem.EncodeToMemory(block)), strings.TrimSpace(string(ssh.MarshalAuthorizedKey(signer.PublicKey()))), signer
}

// TestScriptsRunUnchanged brings two machines to a state with the scripts for real ones, damages
// one, and looks which one differs.
func TestScriptsRunUnchanged(t *testing.T) {
	fleet, err := New(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := fleet.Close(); err != nil {
			t.Error(err)
		}
	})
	_, login, signer := key(t)
	byAddress := map[netip.Addr]*Host{}
	var hosts []*Host
	var machines []*remote.Machine
	pool := remote.NewPool(remote.Config{Signers: []ssh.Signer{signer}})
	defer func() { _ = pool.Close() }()
	for n := range 2 {
		private, public, _ := key(t)
		name, address := fmt.Sprintf("m-%d", n), netip.AddrFrom4([4]byte{198, 51, 100, byte(10 + n)})
		h, err := fleet.Add(name, Spec{Name: name, Address: address, User: "admin", LoginKeys: []string{login}, HostKey: private, HostPublicKey: public})
		if err != nil {
			t.Fatal(err)
		}
		byAddress[address], hosts = h, append(hosts, h)
		machines = append(machines, pool.Machine(remote.Host{Name: name, Address: address.String(), User: "admin", HostKeys: []string{public}}))
	}
	l, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "0.0.0.0:22")
	if err != nil {
		t.Fatal(err)
	}
	server := Server{Fleet: fleet, Find: func(a netip.Addr) *Host { return byAddress[a] }}
	go server.Serve(t.Context(), l)

	want := desired.State{
		Packages: []string{"nftables"}, Modules: []string{"br_netfilter", "overlay"},
		Sysctls:     map[string]string{"net.ipv4.ip_forward": "1", "net.bridge.bridge-nf-call-iptables": "1"},
		Directories: []desired.Directory{{Path: "/etc/app", Mode: 0o750}},
		Files: []desired.File{
			{Path: "/etc/app/config", Mode: 0o640, Content: []byte("a: 1\n")},
			{Path: "/etc/systemd/system/app.service", Mode: 0o644, Content: []byte("[Service]\nType=exec\nExecStart=/usr/local/bin/app\n")},
			{Path: "/etc/systemd/system/once.service", Mode: 0o644, Content: []byte("[Service]\nType=oneshot\nExecStart=/bin/sh -c 'hostname >/run/once'\n")},
		},
		Units: []desired.Unit{
			{Name: "app.service", Enabled: true, Active: true, Check: "test -e /run/once", RestartOn: []string{"/etc/app/config"}},
			{Name: "once.service", Enabled: true, Active: true},
		},
	}
	before, err := os.ReadFile("/proc/sys/net/ipv4/ip_forward")
	if err != nil {
		t.Fatal(err)
	}
	records := make([]host.Record, 2)
	diff := func(n int) []host.Change {
		t.Helper()
		seen, err := host.Observe(t.Context(), machines[n], want, records[n])
		if err != nil {
			t.Fatal(err)
		}
		return host.Diff(want, seen, records[n])
	}
	for n, m := range machines {
		changes := diff(n)
		if len(changes) < 10 {
			t.Errorf("a new machine differs only in: %s", host.Words(changes))
		}
		if records[n], err = host.Apply(t.Context(), m, want, changes, host.Record{}, host.Options{}); err != nil {
			t.Fatal(err)
		}
		if left := diff(n); len(left) > 0 {
			t.Errorf("after the apply: %s", host.Words(left))
		}
	}
	if after, err := os.ReadFile("/proc/sys/net/ipv4/ip_forward"); err != nil || string(after) != string(before) {
		t.Errorf("the kernel's setting is %q, and was %q (%v)", after, before, err)
	}

	if err := write(hosts[1].Root+"/etc/app/config", "a: 2\n"); err != nil {
		t.Fatal(err)
	}
	if left := diff(0); len(left) > 0 {
		t.Errorf("the other machine: %s", host.Words(left))
	}
	if got := host.Words(diff(1)); !strings.Contains(got, "/etc/app/config") {
		t.Errorf("the damaged machine: %s", got)
	}

	fleet.Reset()
	if left := diff(0); len(left) > 0 || fleet.Commands.Load() != 1 || fleet.Handshakes.Load() != 0 || fleet.Bytes.Load() == 0 {
		t.Errorf("an observation took %d round trips and %d handshakes", fleet.Commands.Load(), fleet.Handshakes.Load())
	}

	next, err := deed.PrepareHostKey(t.Context(), machines[0], []string{hosts[0].HostPublicKey})
	if err != nil {
		t.Fatal(err)
	}
	if err := deed.SwitchHostKey(t.Context(), machines[0], next); err != nil {
		t.Fatal(err)
	}
	again := pool.Machine(remote.Host{Name: "m-0", Address: "198.51.100.10", User: "admin", HostKeys: []string{next}})
	if err := again.Ping(t.Context()); err != nil {
		t.Errorf("with the new host key: %v", err)
	}
}
