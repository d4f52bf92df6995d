package hostengine

import (
	"context"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/desired"
	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/host"
)

// archivePath is the path of the package archive on the mirror.
const archivePath = "/archive/"

// maintainer is the script that dpkg runs at each step of an installation. If the machine has a
// file /cut.STEP, it kills dpkg at that step, as a power failure would.
const maintainer = `#!/bin/sh
cut=/cut.${0##*[./]}
if [ -e "$cut" ]; then
	rm "$cut"
	kill -9 "$PPID"
fi
exit 0
`

// offerPackage turns the mirror into an archive with one package, web, and configures it as the
// machine's only archive.
func (m *realMachine) offerPackage() {
	m.t.Helper()
	dir := m.t.TempDir()
	control := "Package: web\nVersion: 1\nArchitecture: all\nMaintainer: nobody <nobody@example.com>\nDescription: a package\n"
	for name, content := range map[string]string{
		"DEBIAN/control": control, "DEBIAN/preinst": maintainer, "DEBIAN/postinst": maintainer, "usr/share/web/index.html": "hello\n",
	} {
		path := filepath.Join(dir, "web", name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			m.t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(content), 0o755); err != nil {
			m.t.Fatal(err)
		}
	}
	deb := filepath.Join(dir, "web.deb")
	if out, err := exec.CommandContext(m.t.Context(), "dpkg-deb", "--build", "--root-owner-group", "-Zgzip", filepath.Join(dir, "web"), deb).CombinedOutput(); err != nil {
		m.t.Fatalf("%v\n%s", err, out)
	}
	content, err := os.ReadFile(deb)
	if err != nil {
		m.t.Fatal(err)
	}
	_, digest := m.offer(archivePath+"web.deb", content)
	packages := fmt.Sprintf("%sFilename: ./web.deb\nSize: %d\nSHA256: %s\n", control, len(content), digest)
	_, digest = m.offer(archivePath+"Packages", []byte(packages))
	m.offer(archivePath+"Release", fmt.Appendf(nil, "Date: %s\nSHA256:\n %s %d Packages\n", time.Now().UTC().Format(time.RFC1123), digest, len(packages)))
	m.sh("rm -rf /etc/apt/sources.list /etc/apt/sources.list.d/*; echo 'deb [trusted=yes] http://" + m.mirror + archivePath + " ./' >/etc/apt/sources.list")
}

// interfere lets f answer before the mirror serves the archive; nil ends that.
func (m *realMachine) interfere(f func(w http.ResponseWriter, r *http.Request)) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.trouble = f
}

// hold makes a process of another unit hold a lock of apt or dpkg on the machine.
func (m *realMachine) hold(unit, path string) {
	m.sh(`rm -f /run/held
systemd-run --quiet --unit=` + unit + ` python3 -c 'import fcntl, time
f = open("` + path + `", "w")
fcntl.lockf(f, fcntl.LOCK_EX)
open("/run/held", "w")
time.sleep(600)'
timeout 20 sh -c 'until [ -e /run/held ]; do sleep 0.05; done'`)
}

// testPackages checks that one apply installs the missing packages whatever a freshly booted
// machine is doing, and that it says what it waits for.
func (m *realMachine) testPackages(t *testing.T) {
	m.offerPackage()
	want := desired.State{Packages: []string{"web"}}
	noLists := "rm -rf /var/lib/apt/lists/*"
	unavailable := func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusServiceUnavailable) }
	for _, tt := range []struct {
		name   string
		damage func()
		until  string // the message at which mend is called
		mend   func()
		says   string
	}{
		{"new machine", func() { m.sh(noLists) }, "", nil, "fetching the package lists"},
		{"lists there", func() {}, "", nil, "installing packages web"},
		{"archive unavailable", func() { m.sh(noLists); m.interfere(unavailable) }, "waiting for the package archive", func() { m.interfere(nil) },
			"waiting for the package archive: Failed to fetch http://" + m.mirror + archivePath},
		{"package unavailable", func() { m.interfere(unavailable) }, "waiting for the package archive", func() { m.interfere(nil) },
			"waiting for the package archive: Failed to fetch http://" + m.mirror + archivePath},
		{"archive stalled", func() {
			m.sh(noLists)
			m.interfere(func(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() })
		}, "waiting for the package archive", func() { m.interfere(nil) }, "waiting for the package archive: Failed to fetch http://" + m.mirror + archivePath},
		{"lists locked", func() { m.sh(noLists); m.hold("apt-daily-update", "/var/lib/apt/lists/lock") }, "waiting: ",
			func() { m.sh("systemctl stop apt-daily-update") }, " of apt-daily-update.service) holds /var/lib/apt/lists/lock"},
		{"dpkg locked", func() { m.hold("upgrade", "/var/lib/dpkg/lock-frontend") }, "waiting: ",
			func() { m.sh("systemctl stop upgrade") }, " of upgrade.service) holds /var/lib/dpkg/lock-frontend"},
		{"archives locked", func() { m.hold("upgrade", "/var/cache/apt/archives/lock") }, "waiting: ",
			func() { m.sh("systemctl stop upgrade") }, " of upgrade.service) holds /var/cache/apt/archives/lock"},
		{"power cut while unpacking", func() { m.sh("touch /cut.preinst; ! apt-get -q -y install web 2>&1") }, "", nil, "installing packages web"},
		{"power cut while configuring", func() { m.sh("touch /cut.postinst; ! apt-get -q -y install web 2>&1") }, "", nil, "installing packages web"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			outer := m.t
			m.t = t
			defer func() { m.t = outer; m.interfere(nil) }()
			m.sh("dpkg --purge --force-all web 2>&1; apt-get clean")
			tt.damage()
			changes := m.diff(want, host.Record{})
			if got := host.Words(changes); got != "package web: not installed" {
				t.Fatalf("difference: %s", got)
			}
			var said []string
			start := time.Now()
			ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
			defer cancel()
			_, err := host.Apply(ctx, m, want, changes, host.Record{}, host.Options{Progress: func(s string) {
				t.Logf("%s: %s", time.Since(start).Round(10*time.Millisecond), s)
				said = append(said, s)
				if tt.mend != nil && strings.HasPrefix(s, tt.until) {
					tt.mend()
				}
			}})
			if err != nil {
				t.Fatal(err)
			}
			t.Logf("applied in %s", time.Since(start))
			if all := strings.Join(said, "\n"); !strings.Contains(all, tt.says) {
				t.Errorf("nothing said %q:\n%s", tt.says, all)
			}
			if left := m.diff(want, host.Record{}); len(left) > 0 {
				t.Errorf("left: %s", host.Words(left))
			}
		})
	}
}
