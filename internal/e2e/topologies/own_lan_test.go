package topologies_test

import (
	"cmp"
	"context"
	"crypto/ed25519"
	"crypto/rand"
	"encoding/pem"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/crypto/ssh"

	"github.com/k8s-from-scratch/terraform-provider-k8s/internal/e2e/harness"
	"github.com/k8s-from-scratch/terraform-provider-k8s/internal/lab/cache"
	"github.com/k8s-from-scratch/terraform-provider-k8s/internal/lab/machine"
	"github.com/k8s-from-scratch/terraform-provider-k8s/internal/lab/nsenter"
	"github.com/k8s-from-scratch/terraform-provider-k8s/internal/lab/outside"
	"github.com/k8s-from-scratch/terraform-provider-k8s/internal/lab/sources"
	"github.com/k8s-from-scratch/terraform-provider-k8s/internal/progress"
)

// lan is machines that know nothing of EC2, on one switch: a bridge in a network namespace. This computer is
// on the switch as well, and is their router and their mirror of Debian.
type lan struct {
	t       *testing.T
	manager *machine.Manager
	images  map[string]string // ids, by release of Debian
	mirror  string            // address of the lab's mirror and registry
	names   []string          // of the namespaces
	specs   map[string]machine.Spec
}

const (
	lanNetwork = "192.168.77.0/24"
	lanRouter  = "192.168.77.1"
	lanServer  = "192.168.77.2" // the way to the lab's mirror of releases and its registry
	lanPrefix  = "klan-"        // of names on this computer
)

// lanMachine is a machine as its owner would describe it.
type lanMachine struct {
	Address string `json:"address"`
	HostKey string `json:"host_key"`
}

// newLAN makes the switch and puts this computer on it, until the test ends.
func newLAN(t *testing.T) *lan {
	t.Helper()
	l := &lan{t: t, images: map[string]string{}, specs: map[string]machine.Spec{}}
	// This computer must not lose a network of its own.
	for _, part := range []string{"match", "root"} {
		out, err := exec.CommandContext(t.Context(), "ip", "-4", "route", "show", part, lanNetwork).Output()
		if err != nil {
			t.Fatal(err)
		}
		for used := range strings.Lines(string(out)) {
			if !strings.HasPrefix(used, "default ") {
				t.Fatalf("this computer has a route to %s already: %s", lanNetwork, used)
			}
		}
	}
	var images []machine.Image
	for _, r := range machine.Releases {
		image, err := machine.EnsureImage(t.Context(), cache.DefaultDir(), r, machine.Container, progress.To(func(s string) { t.Log(s) }))
		if err != nil {
			t.Fatal(err)
		}
		l.images[r.Version], images = image.ID, append(images, image)
	}
	var err error
	if l.manager, err = machine.NewManager(filepath.Join(suite.Dir, "lan"), machine.Container, images); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(l.down)
	l.namespace("switch")
	l.ip("-n", lanPrefix+"switch", "link", "add", "switch", "type", "bridge", "forward_delay", "0")
	l.ip("-n", lanPrefix+"switch", "link", "set", "switch", "up")
	l.plug(0)
	l.ip("address", "add", lanRouter+"/24", "dev", lanPrefix+"0")
	l.ip("link", "set", lanPrefix+"0", "up")
	l.archive()
	l.artifacts()
	return l
}

func (l *lan) ip(args ...string) {
	l.t.Helper()
	if out, err := exec.CommandContext(l.t.Context(), "ip", args...).CombinedOutput(); err != nil {
		l.t.Fatalf("ip %s: %v\n%s", strings.Join(args, " "), err, out)
	}
}

func (l *lan) namespace(name string) {
	l.t.Helper()
	l.ip("netns", "add", lanPrefix+name)
	l.names = append(l.names, name)
	l.ip("-n", lanPrefix+name, "link", "set", "lo", "up")
}

// plug adds a link to the switch, whose other end is on this computer.
func (l *lan) plug(port int) {
	l.t.Helper()
	end, in := fmt.Sprint(lanPrefix, port), fmt.Sprint("port", port)
	l.ip("link", "add", end, "type", "veth", "peer", "name", in, "netns", lanPrefix+"switch")
	l.ip("-n", lanPrefix+"switch", "link", "set", in, "master", "switch", "up")
}

func (l *lan) down() {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	if err := l.manager.Down(ctx); err != nil {
		l.t.Error(err)
	}
	for _, name := range l.names {
		if out, err := exec.CommandContext(ctx, "ip", "netns", "delete", lanPrefix+name).CombinedOutput(); err != nil {
			l.t.Errorf("namespace %s: %v\n%s", name, err, out)
		}
	}
	_ = exec.CommandContext(ctx, "ip", "link", "delete", lanPrefix+"0").Run() // it may have gone with the switch
}

// archive serves Debian's packages on this computer's address.
func (l *lan) archive() {
	l.t.Helper()
	listener, err := (&net.ListenConfig{}).Listen(l.t.Context(), "tcp4", lanRouter+":80")
	if err != nil {
		l.t.Fatal(err)
	}
	debian := outside.NewArchive(filepath.Join(cache.DefaultDir(), "archive"), sources.DebianMirror(), &outside.Log{}, slog.New(slog.DiscardHandler))
	server := &http.Server{Handler: debian, ReadHeaderTimeout: time.Minute}
	go func() { _ = server.Serve(listener) }()
	l.t.Cleanup(func() { _ = server.Close() })
}

// artifacts serves the lab's mirror of releases and its registry on the switch, at their own address. This computer
// reaches them, but does not forward.
func (l *lan) artifacts() {
	l.t.Helper()
	at, err := url.Parse(suite.Getenv("K8S_ARTIFACT_MIRROR"))
	if err != nil {
		l.t.Fatal(err)
	}
	l.mirror = at.Hostname()
	l.ip("-n", lanPrefix+"switch", "address", "add", lanServer+"/24", "dev", "switch")
	l.ip("-n", lanPrefix+"switch", "address", "add", l.mirror+"/32", "dev", "lo")
	for _, port := range []string{at.Port(), "5000"} {
		address := net.JoinHostPort(l.mirror, port)
		var listener net.Listener
		if err := nsenter.Run("/run/netns/"+lanPrefix+"switch", func() (err error) {
			listener, err = (&net.ListenConfig{}).Listen(l.t.Context(), "tcp4", address)
			return err
		}); err != nil {
			l.t.Fatal(err)
		}
		l.t.Cleanup(func() { _ = listener.Close() })
		go func() {
			for {
				from, err := listener.Accept()
				if err != nil {
					return
				}
				go join(l.t.Context(), from, address)
			}
		}()
	}
}

// join copies between a connection and one to an address, until one of them ends.
func join(ctx context.Context, from net.Conn, address string) {
	defer func() { _ = from.Close() }()
	to, err := (&net.Dialer{Timeout: 10 * time.Second}).DialContext(ctx, "tcp4", address)
	if err != nil {
		return
	}
	defer func() { _ = to.Close() }()
	go func() {
		_, _ = io.Copy(to, from)
		_ = to.Close()
	}()
	_, _ = io.Copy(from, to)
}

// start boots a machine with a static address, whose user admin the suite's key opens. It has Debian 13, or the
// release of K8S_E2E_DEBIAN.
func (l *lan) start(port int, name string, memoryMiB int) lanMachine {
	l.t.Helper()
	return l.startDebian(cmp.Or(os.Getenv("K8S_E2E_DEBIAN"), machine.Releases[0].Version), port, name, memoryMiB)
}

// startDebian is start with a release of Debian.
func (l *lan) startDebian(release string, port int, name string, memoryMiB int) lanMachine {
	l.t.Helper()
	image := l.images[release]
	if image == "" {
		l.t.Fatalf("there is no image of Debian %q", release)
	}
	address := fmt.Sprintf("192.168.77.%d", 10+port)
	l.plug(port)
	l.namespace(name)
	l.ip("link", "set", fmt.Sprint(lanPrefix, port), "netns", lanPrefix+name, "name", "ens5")
	public, private := l.hostKey()
	userKey, err := os.ReadFile(suite.SSH)
	if err != nil {
		l.t.Fatal(err)
	}
	signer, err := ssh.ParsePrivateKey(userKey)
	if err != nil {
		l.t.Fatal(err)
	}
	s := machine.Spec{ID: lanPrefix + name, Image: image, Hostname: name, Netns: "/run/netns/" + lanPrefix + name, VCPUs: 2, Cores: 1, MemoryMiB: memoryMiB,
		Files: map[string]string{
			"etc/cloud/cloud.cfg.d/99-own.cfg":     "datasource_list: [NoCloud]\nmanage_etc_hosts: false\nnetwork: {config: disabled}\n",
			"var/lib/cloud/seed/nocloud/meta-data": "instance-id: " + name + "\nlocal-hostname: " + name + "\n",
			"var/lib/cloud/seed/nocloud/user-data": userData(public, private, string(ssh.MarshalAuthorizedKey(signer.PublicKey()))),
			"etc/systemd/network/10-lan.network":   "[Match]\nName=ens5\n[Network]\nAddress=" + address + "/24\nGateway=" + lanRouter + "\nDNS=" + lanRouter + "\n[Route]\nDestination=" + l.mirror + "\nGateway=" + lanServer + "\n",
			"etc/hosts":                            "127.0.0.1 localhost\n" + lanRouter + " cdn-aws.deb.debian.org deb.debian.org\n",
		}}
	l.specs[name] = s
	l.boot(l.t, name)
	return lanMachine{Address: address, HostKey: public}
}

func userData(public, private, authorized string) string {
	return "#cloud-config\nssh_keys:\n  ed25519_private: |\n    " + strings.ReplaceAll(strings.TrimSpace(private), "\n", "\n    ") +
		"\n  ed25519_public: " + public + "\nssh_authorized_keys:\n- " + strings.TrimSpace(authorized) + "\n"
}

func (l *lan) hostKey() (public, private string) {
	l.t.Helper()
	_, raw, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		l.t.Fatal(err)
	}
	signer, err := ssh.NewSignerFromKey(raw)
	if err != nil {
		l.t.Fatal(err)
	}
	block, err := ssh.MarshalPrivateKey(raw, "")
	if err != nil {
		l.t.Fatal(err)
	}
	return strings.TrimSpace(string(ssh.MarshalAuthorizedKey(signer.PublicKey()))), string(pem.EncodeToMemory(block))
}

// boot boots a machine, from its disk if it had run before.
func (l *lan) boot(t *testing.T, name string) {
	t.Helper()
	if err := l.manager.Start(t.Context(), l.specs[name]); err != nil {
		t.Fatal(err)
	}
}

// cut cuts the power of a machine.
func (l *lan) cut(t *testing.T, name string) {
	t.Helper()
	if err := l.manager.Kill(t.Context(), lanPrefix+name); err != nil {
		t.Fatal(err)
	}
}

// reboot reboots a machine from outside.
func (l *lan) reboot(t *testing.T, name string) {
	t.Helper()
	if err := l.manager.Reboot(t.Context(), lanPrefix+name); err != nil {
		t.Fatal(err)
	}
}

// ifupdown gives a machine the network of Debian's installer: /etc/network/interfaces in place of systemd-networkd. Its
// network namespace has the address of before a reboot, which a computer has not.
func (l *lan) ifupdown(t *testing.T, c *harness.Cluster, name string) {
	t.Helper()
	c.Sh(t, name, `set -e
export DEBIAN_FRONTEND=noninteractive
apt-get update -qq
apt-get install -y -qq ifupdown >/dev/null
printf 'auto lo ens5\niface lo inet loopback\niface ens5 inet static\n\tpre-up ip address flush dev ens5\n\taddress `+c.Addresses[name]+`/24\n\tgateway `+lanRouter+`\n\tup ip route add `+l.mirror+` via `+lanServer+`\n' >/etc/network/interfaces
systemctl disable systemd-networkd.service systemd-networkd.socket systemd-resolved.service
rm -f /etc/resolv.conf
echo nameserver `+lanRouter+` >/etc/resolv.conf
systemctl enable networking.service`)
	l.reboot(t, name)
	harness.Eventually(t, 2*time.Minute, name+" has its network from ifupdown", func() error {
		out, err := c.TrySh(t.Context(), name, "systemctl is-active networking && ! systemctl is-active systemd-networkd && ifquery --state ens5")
		if err != nil {
			return fmt.Errorf("%w: %s", err, out)
		}
		return nil
	})
}
