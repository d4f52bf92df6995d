package hostengine

import (
	"context"
	"errors"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/crypto/ssh"

	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/artifact"
	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/bake"
	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/builtin"
	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/component"
	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/host"
	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/registry"
	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/remote"
	"github.com/k8s-from-scratch/terraform-provider-k8s/internal/lab/cache"
	"github.com/k8s-from-scratch/terraform-provider-k8s/internal/lab/machine"
	labregistry "github.com/k8s-from-scratch/terraform-provider-k8s/internal/lab/registry"
	labrelease "github.com/k8s-from-scratch/terraform-provider-k8s/internal/lab/release"
	"github.com/k8s-from-scratch/terraform-provider-k8s/internal/progress"
)

// served serves a handler at a port of the operator, and counts the requests.
func (m *realMachine) served(port string, h http.Handler) (url string, requests *atomic.Int32) {
	m.t.Helper()
	requests = &atomic.Int32{}
	at := net.JoinHostPort(m.network.Operator().String(), port)
	l, err := new(net.ListenConfig).Listen(m.t.Context(), "tcp4", at)
	if err != nil {
		m.t.Fatal(err)
	}
	server := &http.Server{ReadHeaderTimeout: time.Minute, Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		requests.Add(1)
		h.ServeHTTP(w, r)
	})}
	go func() { _ = server.Serve(l) }()
	m.t.Cleanup(func() { _ = server.Close() })
	return "http://" + at, requests
}

// identity is a script that prints everything by which two machines could be told to be made of one another, a line each: name and
// value.
const identity = `
for f in /etc/machine-id /var/lib/dbus/machine-id /etc/hostname /etc/nvme/hostid /var/lib/systemd/random-seed /var/lib/systemd/credential.secret \
	/var/lib/containerd/io.containerd.grpc.v1.introspection/uuid /etc/ssh/ssh_host_*_key /home/*/.ssh/id_* /root/.ssh/id_*; do
	[ ! -s "$f" ] || echo "$f $(sha256sum <"$f" | cut -d' ' -f1)"
done
echo "instance $(cat /var/lib/cloud/data/instance-id)"
`

// TestImage makes a machine what an image has, seals it, and makes two machines of it: roles find everything there and download nothing,
// and the two share nothing that they may not.
func TestImage(t *testing.T) {
	m := boot(t)
	opts := labrelease.Options{CacheDir: cache.DefaultDir(), Progress: progress.To(func(s string) { t.Log(s) })}
	files, err := labrelease.EnsureMirror(t.Context(), opts)
	if err != nil {
		t.Fatal(err)
	}
	layout, err := labrelease.EnsureImages(t.Context(), opts)
	if err != nil {
		t.Fatal(err)
	}
	images, err := labregistry.New(layout)
	if err != nil {
		t.Fatal(err)
	}
	mirror, downloads := m.served("8081", http.FileServer(http.Dir(files)))
	pulls, pulled := m.served("8082", images)
	sums, err := os.Open(filepath.Join(files, "SHA256SUMS"))
	if err != nil {
		t.Fatal(err)
	}
	defer sums.Close()
	catalog, err := artifact.NewCatalog(mirror, sums, nil)
	if err != nil {
		t.Fatal(err)
	}
	releases := component.Releases{Kubernetes: strings.TrimPrefix(labrelease.KubernetesVersion, "v"), Etcd: strings.TrimPrefix(labrelease.EtcdVersion, "v")}
	controller, err1 := releases.Controller(catalog)
	worker, err2 := releases.Worker(catalog)
	if err := errors.Join(err1, err2); err != nil {
		t.Fatal(err)
	}
	m.offerPackage()
	site := bake.Site{
		Name: m.Name(), State: component.Staged(slices.Concat(controller, worker), []string{"web"}), Images: builtin.PodImages(),
		Registries: registry.Registries{"registry.k8s.io": {{URL: pulls}}}, Progress: func(s string) { t.Log(s) },
	}
	if err := site.Seal(t.Context(), m.Machine); err == nil || !strings.Contains(err.Error(), "was not made to become an image") {
		t.Fatalf("a machine of a cluster was sealed: %v", err)
	}
	m.sh("mkdir -p /var/lib/k8s-from-scratch; : >/var/lib/k8s-from-scratch/image-builder; echo secret >/root/.bash_history; echo x >/var/log/x.log")
	for range 2 { // an interrupted run is repeated
		start := time.Now()
		if err := site.Install(t.Context(), m.Machine); err != nil {
			t.Fatal(err)
		}
		t.Logf("figures: everything installed in %.1f s, after %d downloads and %d requests for container images", time.Since(start).Seconds(), downloads.Load(), pulled.Load())
	}
	first := lines(m.sh(identity))
	m.sh("rm /usr/local/bin/etcdctl && printf '#!/bin/sh\\nexit 1\\n' >/usr/local/bin/etcdctl && chmod 755 /usr/local/bin/etcdctl")
	if left := m.diff(site.State, host.Record{}); len(left) != 1 {
		t.Errorf("a program of others is not noticed: %s", host.Words(left))
	}
	if err := site.Install(t.Context(), m.Machine); err != nil {
		t.Fatal(err)
	}
	if err := site.Seal(t.Context(), m.Machine); err != nil {
		t.Fatal(err)
	}
	brief, cancel := context.WithTimeout(t.Context(), 3*time.Second)
	defer cancel()
	if err := remote.NewPool(remote.Config{Signers: []ssh.Signer{m.network.Key}, Dial: m.dial}).Machine(m.Host()).WaitReady(brief, 0); err == nil {
		t.Error("a sealed machine lets its administrator in")
	}
	builder := m.spec
	if err := m.manager.Stop(t.Context(), builder.ID); err != nil {
		t.Fatal(err)
	}
	if err := m.manager.Snapshot(t.Context(), builder.ID, "snap-0123456789abcdef0"); err != nil {
		t.Fatal(err)
	}
	if err := m.manager.Terminate(t.Context(), builder.ID); err != nil {
		t.Fatal(err)
	}

	asked, images0 := downloads.Load(), pulled.Load()
	seen := map[string]string{}
	for name, value := range first {
		seen[name+" "+value] = "the machine of the image"
	}
	for range 2 {
		m.start(machine.Spec{Image: builder.Image, Snapshot: "snap-0123456789abcdef0"})
		if _, err := host.AwaitBoot(t.Context(), m.Machine, func(s string) { t.Log(s) }); err != nil {
			t.Fatal(err)
		}
		if left := m.diff(site.State, host.Record{}); len(left) > 0 {
			t.Errorf("a role would change %s", host.Words(left))
		}
		for name, value := range lines(m.sh(identity)) {
			if other := seen[name+" "+value]; other != "" {
				t.Errorf("%s has the %s of %s", m.spec.ID, name, other)
			}
			seen[name+" "+value] = m.spec.ID
		}
		if got := m.sh("cat /root/.bash_history /var/log/x.log /var/lib/k8s-from-scratch/image-builder 2>/dev/null || :; grep -rls " + builder.Hostname + " /etc /root /home /var/lib /var/log 2>/dev/null || :"); got != "" {
			t.Errorf("left of the machine of the image: %s", got)
		}
		if got := m.sh("systemctl is-enabled haproxy.service nftables.service 2>/dev/null | grep enabled || :"); got != "" {
			t.Errorf("units that roles start are enabled: %s", got)
		}
		if got := m.sh("ls /var/lib/containerd/io.containerd.content.v1.content/blobs/sha256 | wc -l"); got == "0" {
			t.Error("there are no container images")
		}
	}
	if downloads.Load() != asked || pulled.Load() != images0 {
		t.Errorf("%d downloads and %d requests for images", downloads.Load()-asked, pulled.Load()-images0)
	}
}

// lines returns lines of a name and a value.
func lines(text string) map[string]string {
	out := map[string]string{}
	for line := range strings.Lines(text) {
		name, value, _ := strings.Cut(strings.TrimSpace(line), " ")
		out[name] = value
	}
	return out
}
