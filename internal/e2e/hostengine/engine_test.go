package hostengine

import (
	"bytes"
	"context"
	"errors"
	"math/rand/v2"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/desired"
	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/host"
	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/remote"
)

var digests = regexp.MustCompile(`[0-9a-f]{12}\.\.`)

// units returns a state with three services: app runs with a program and a configuration file,
// notify reports when it is ready, and other depends on nothing.
func (m *realMachine) units(version string) desired.State {
	url, digest := m.offer("/app-"+version, []byte("#!/bin/sh\n# version "+version+"\necho \"app "+version+" with $(cat /etc/app/app.conf)\"\nexec sleep infinity\n"))
	unit := func(name, service string) desired.File {
		return desired.File{Path: "/etc/systemd/system/" + name, Mode: 0o644, Content: []byte(
			"[Unit]\nDescription=" + name + "\n[Service]\n" + service + "\n[Install]\nWantedBy=multi-user.target\n")}
	}
	return desired.State{
		Packages:    []string{"curl"},
		Modules:     []string{"overlay"},
		Sysctls:     map[string]string{"net.ipv4.ip_local_port_range": "32000 60000"},
		Directories: []desired.Directory{{Path: "/var/lib/app", Mode: 0o700}},
		Files: []desired.File{
			{Path: "/etc/app/app.conf", Mode: 0o644, Content: []byte("setting " + version + "\n")},
			{Path: "/etc/app/app.key", Mode: 0o600, Content: []byte("secret " + version), Secret: true},
			unit("app-main.service", "ExecStart=/usr/local/bin/app"),
			unit("notify.service", "Type=notify\nNotifyAccess=all\nExecStart=/bin/sh -c 'sleep 0.2; systemd-notify --ready; exec sleep infinity'"),
			unit("other.service", "ExecStart=sleep infinity"),
		},
		Binaries: []desired.Binary{{Name: "app", Version: version, URL: url, SHA256: digest,
			Installs: []desired.Install{{Path: "/usr/local/bin/app"}}}},
		Units: []desired.Unit{
			{Name: "other.service", Enabled: true, Active: true},
			{Name: "notify.service", Enabled: true, Active: true},
			{Name: "app-main.service", Enabled: true, Active: true, RestartOn: []string{"/usr/local/bin/app", "/etc/app/app.conf"}},
		},
	}
}

// starts returns when each unit became active, in microseconds since boot.
func (m *realMachine) starts(want desired.State, rec host.Record) map[string]uint64 {
	m.t.Helper()
	out := map[string]uint64{}
	for name, u := range m.observe(want, rec).Units {
		out[name] = u.ActiveEnter
	}
	return out
}

func TestEngine(t *testing.T) {
	m := boot(t)
	want := m.units("1")
	var rec host.Record
	sub := func(name string, f func(t *testing.T)) {
		t.Run(name, func(t *testing.T) {
			m.t = t
			f(t)
		})
		m.t = t
	}

	sub("first install", func(t *testing.T) {
		start, trips, dials := time.Now(), m.trips.Load(), m.dials.Load()
		changes := m.diff(want, rec)
		observed := time.Now()
		t.Log(host.Words(changes))
		var err error
		if rec, err = host.Apply(t.Context(), m, want, changes, rec, host.Options{Progress: func(s string) { t.Log(s) }}); err != nil {
			t.Fatal(err)
		}
		t.Logf("observed in %s, applied in %s", observed.Sub(start), time.Since(observed))
		if n := m.trips.Load() - trips; n != 2 {
			t.Errorf("%d round trips, want 2", n)
		}
		start = time.Now()
		if left := m.diff(want, rec); len(left) > 0 {
			t.Errorf("second plan: %s", host.Words(left))
		}
		t.Logf("observed again in %s", time.Since(start))
		if n := m.dials.Load() - dials; n != 0 {
			t.Errorf("%d new connections, want the one that was there", n)
		}
	})
	sub("damage", func(t *testing.T) { rec = m.testDamage(t, want, rec) })
	sub("refused downloads", func(t *testing.T) { rec = m.testRefusedDownloads(t, want, rec) })
	sub("full disk", func(t *testing.T) { m.testFullDisk(t, rec) })
	sub("crashing unit", func(t *testing.T) { rec = m.testCrashingUnit(t, want, rec) })
	sub("interrupted", func(t *testing.T) { rec = m.testInterrupted(t, rec) })
	sub("boot", m.testBoot)
	sub("packages", m.testPackages)
	sub("reboot", func(t *testing.T) { rec = m.testReboot(t, want, rec) })
	sub("remove", func(t *testing.T) { m.testRemove(t, want) })
}

// testDamage changes one thing at a time, as a person would.
func (m *realMachine) testDamage(t *testing.T, want desired.State, rec host.Record) host.Record {
	for _, tt := range []struct {
		name, damage string
		words        string // the finding, with digests as "#"
		restarts     string // the unit that is restarted, if any
	}{
		{"nothing", ":", "", ""},
		{"stopped", "systemctl stop app-main", "unit app-main.service: stopped, wanted running", "app-main.service"},
		{"killed", "systemctl kill -s KILL other; while systemctl -q is-active other; do sleep 0.05; done",
			"unit other.service: failed (signal), wanted running", "other.service"},
		{"disabled", "systemctl disable -q app-main", "unit app-main.service: disabled, wanted enabled", ""},
		{"disabled by hand", "rm /etc/systemd/system/multi-user.target.wants/app-main.service",
			"unit app-main.service: disabled, wanted enabled", ""},
		{"masked", "mv /etc/systemd/system/notify.service /root; systemctl -q mask notify; systemctl stop notify",
			"file /etc/systemd/system/notify.service: is a symbolic link, wanted a regular file; " +
				"unit notify.service: masked, wanted enabled; unit notify.service: stopped, wanted running", "notify.service"},
		{"masked at run time", "mv /etc/systemd/system/notify.service /root; systemctl -q mask --runtime notify",
			"file /etc/systemd/system/notify.service: missing; unit notify.service: masked, wanted enabled", "notify.service"},
		{"unit file edited", "echo '# x' >>/etc/systemd/system/app-main.service",
			"file /etc/systemd/system/app-main.service: content differs (sha256 found #, wanted #)", "app-main.service"},
		{"unit file edited and loaded", "sed -i s/infinity/1d/ /etc/systemd/system/other.service; systemctl daemon-reload; systemctl restart other",
			"file /etc/systemd/system/other.service: content differs (sha256 found #, wanted #)", "other.service"},
		{"unit file removed", "rm /etc/systemd/system/other.service",
			"file /etc/systemd/system/other.service: missing", "other.service"},
		{"unit file removed for good", "rm /etc/systemd/system/other.service; systemctl stop other; systemctl daemon-reload",
			"file /etc/systemd/system/other.service: missing; unit other.service: not installed, wanted enabled and running", "other.service"},
		{"unit file touched", "sleep 1; touch /etc/systemd/system/other.service",
			"unit other.service: systemd has not loaded its files as they are on disk (needs daemon-reload)", "other.service"},
		{"drop-in", "mkdir /etc/systemd/system/other.service.d; printf '[Service]\\nEnvironment=A=1\\n' >/etc/systemd/system/other.service.d/a.conf; systemctl daemon-reload",
			"drop-in /etc/systemd/system/other.service.d/a.conf: not wanted, changes other.service", "other.service"},
		{"drop-in not loaded", "mkdir /run/systemd/system/other.service.d; printf '[Service]\\nNice=5\\n' >'/run/systemd/system/other.service.d/b c.conf'",
			"drop-in /run/systemd/system/other.service.d/b c.conf: not wanted, changes other.service", "other.service"},
		{"drop-in by prefix", "mkdir /etc/systemd/system/app-.service.d; printf '[Service]\\nNice=5\\n' >/etc/systemd/system/app-.service.d/a.conf; systemctl daemon-reload",
			"drop-in /etc/systemd/system/app-.service.d/a.conf: not wanted, changes app-main.service", "app-main.service"},
		{"property set", "systemctl set-property other.service IPAccounting=yes",
			"drop-in /etc/systemd/system.control/other.service.d/50-IPAccounting.conf: not wanted, changes other.service", "other.service"},
		{"unit of higher precedence", "mkdir -p /run/systemd/transient; cp /etc/systemd/system/other.service /run/systemd/transient/; systemctl daemon-reload",
			"drop-in /run/systemd/transient/other.service: not wanted, takes the place of other.service", "other.service"},
		{"configuration", "echo 'setting 9' >/etc/app/app.conf", "file /etc/app/app.conf: content differs (sha256 found #, wanted #)", "app-main.service"},
		{"secret", "echo foreign >/etc/app/app.key", "file /etc/app/app.key: differs", ""},
		{"secret readable", "chmod 0644 /etc/app/app.key", "file /etc/app/app.key: mode 0644, wanted 0600", ""},
		{"owner", "chown admin:adm /etc/app/app.conf",
			"file /etc/app/app.conf: owner admin, wanted root; file /etc/app/app.conf: group adm, wanted root", ""},
		{"binary replaced", "printf '#!/bin/sh\\n# a longer program, from somewhere else, that also sleeps for ever and ever\\nexec sleep infinity\\n' >/usr/local/bin/new; chmod 755 /usr/local/bin/new; mv /usr/local/bin/new /usr/local/bin/app",
			"binary /usr/local/bin/app: content differs (sha256 found #, wanted #)", "app-main.service"},
		{"binary truncated", "truncate -s 10 /usr/local/bin/app", "binary /usr/local/bin/app: truncated to 10 bytes, wanted app 1 (85 bytes)", "app-main.service"},
		{"binary not executable", "chmod -x /usr/local/bin/app", "binary /usr/local/bin/app: not executable: mode 0644, wanted 0755", ""},
		{"sysctl", "echo 1024 65535 >/proc/sys/net/ipv4/ip_local_port_range",
			"sysctl net.ipv4.ip_local_port_range: 1024 65535, wanted 32000 60000", ""},
		{"sysctl not lasting", "rm /etc/sysctl.d/90-k8s-net.ipv4.ip_local_port_range.conf",
			"file /etc/sysctl.d/90-k8s-net.ipv4.ip_local_port_range.conf: missing", ""},
		{"module not lasting", "rm /etc/modules-load.d/k8s-overlay.conf", "file /etc/modules-load.d/k8s-overlay.conf: missing", ""},
		{"directory", "chmod 0755 /var/lib/app", "directory /var/lib/app: mode 0755, wanted 0700", ""},
	} {
		t.Run(tt.name, func(t *testing.T) {
			m.t = t
			before := m.starts(want, rec)
			m.sh(tt.damage)
			changes := m.diff(want, rec)
			if got := digests.ReplaceAllString(host.Words(changes), "#"); got != tt.words {
				t.Errorf("the difference reads\n%s\nwant\n%s", got, tt.words)
			}
			trips := m.trips.Load()
			var err error
			if rec, err = host.Apply(t.Context(), m, want, changes, rec, host.Options{}); err != nil {
				t.Fatal(err)
			}
			if n := m.trips.Load() - trips; n > 1 {
				t.Errorf("the repair took %d round trips", n)
			}
			if left := m.diff(want, rec); len(left) > 0 {
				t.Errorf("after the repair: %s", host.Words(left))
			}
			for name, now := range m.starts(want, rec) {
				if started := now != before[name]; started != (name == tt.restarts) {
					t.Errorf("%s started anew: %v", name, started)
				}
			}
		})
	}
	m.t = t
	return rec
}

func (m *realMachine) testRefusedDownloads(t *testing.T, old desired.State, rec host.Record) host.Record {
	next := m.units("2")
	good := m.files["/app-2"]
	for name, spoil := range map[string]func(){
		"wrong checksum": func() { m.offer("/app-2", []byte("malware")) },
		"truncated":      func() { m.truncate["/app-2"] = true },
	} {
		before := m.starts(old, rec)
		spoil()
		kept, err := host.Apply(t.Context(), m, next, m.diff(next, rec), rec, host.Options{})
		var checksum *host.ChecksumError
		var apply *host.ApplyError
		if errors.As(err, &checksum) != (name == "wrong checksum") || errors.As(err, &apply) != (name == "truncated") {
			t.Errorf("%s: error is %v", name, err)
		}
		t.Logf("%s: %v", name, err)
		if left := m.diff(old, kept); len(left) > 0 {
			t.Errorf("%s: not everything is as it was: %s", name, host.Words(left))
		}
		for unit, started := range m.starts(old, kept) {
			if started != before[unit] {
				t.Errorf("%s: %s was restarted", name, unit)
			}
		}
		m.offer("/app-2", good)
		m.truncate["/app-2"] = false
	}
	return m.converge(next, rec)
}

// testFullDisk checks that a full disk is an immediate error, and that nothing was changed.
func (m *realMachine) testFullDisk(t *testing.T, rec host.Record) {
	next := m.units("full")
	big := bytes.Repeat([]byte("#"), 1<<20)
	next.Binaries[0].URL, next.Binaries[0].SHA256 = m.offer("/big", big)
	changes := m.diff(next, rec)
	m.sh("mount -t tmpfs -o size=64k none /var/cache/k8s-from-scratch")
	start := time.Now()
	_, err := host.Apply(t.Context(), m, next, changes, rec, host.Options{})
	m.sh("umount /var/cache/k8s-from-scratch")
	if err == nil || !strings.Contains(err.Error(), "curl: (23)") || time.Since(start) > 10*time.Second {
		t.Errorf("after %s: %v", time.Since(start), err)
	}
	t.Log(err)
	if got := m.diff(next, rec); host.Words(got) != host.Words(changes) {
		t.Errorf("something was changed: %s", host.Words(got))
	}
}

func (m *realMachine) testCrashingUnit(t *testing.T, good desired.State, rec host.Record) host.Record {
	bad := m.units("1")
	for i, f := range bad.Files {
		if f.Path == "/etc/systemd/system/other.service" {
			bad.Files[i].Content = []byte("[Unit]\nStartLimitIntervalSec=0\n[Service]\nRestart=always\nRestartSec=3\n" +
				"ExecStart=/bin/sh -c '[ ! -e /run/good ] || exec sleep infinity; echo unknown flag: --wrong; exit 2'\n[Install]\nWantedBy=multi-user.target\n")
		}
	}
	start := time.Now()
	rec, err := host.Apply(t.Context(), m, bad, m.diff(bad, rec), rec, host.Options{})
	var apply *host.ApplyError
	if !errors.As(err, &apply) || apply.Unit != "other.service" ||
		!strings.Contains(err.Error(), "unit other.service: failed right after its start (exit-code), wanted running") || !strings.Contains(apply.Journal, "unknown flag: --wrong") {
		t.Errorf("error is %v", err)
	}
	t.Logf("after %s: %v", time.Since(start), err)

	// A unit that waits for its next automatic start is started at once, and that is not a restart after a failure.
	changes := m.diff(bad, rec)
	m.sh(`timeout 60 sh -c 'until [ "$(systemctl show -p SubState --value other)" = auto-restart ]; do sleep 0.05; done' && touch /run/good`)
	if rec, err = host.Apply(t.Context(), m, bad, changes, rec, host.Options{}); err != nil {
		t.Errorf("the program that is good now: %v", err)
	}
	m.sh("rm /run/good; systemctl kill -s KILL other")

	// A unit that exits at every start is distinguished from one that exited once.
	for _, tt := range []struct{ name, before, words string }{
		{"a crash loop", ":", "unit other.service: failing again and again (exit-code: unknown flag: --wrong), wanted running"},
		{"the end of it", "touch /run/good", ""},
		{"one crash", "systemctl kill -s KILL other", ""},
	} {
		m.sh(tt.before)
		start := time.Now()
		if got := host.Words(m.diff(bad, rec)); got != tt.words {
			t.Errorf("%s: %q, want %q", tt.name, got, tt.words)
		}
		t.Logf("%s: judged after %s", tt.name, time.Since(start).Round(100*time.Millisecond))
	}

	// A unit whose next start follows at once is never seen down. Its journal says how it has last ended.
	m.sh(`touch /run/fails
		systemd-run --quiet --unit=brief -p Restart=always -p RestartSec=0 -p StartLimitIntervalSec=0 sh -c 'sleep 0.5; [ -e /run/fails ] || exit 0; echo unknown flag: --brief; exit 2'`)
	for _, tt := range []struct{ before, words string }{
		{":", "unit brief.service: failing again and again (exit-code: unknown flag: --brief), wanted running"},
		{"rm /run/fails", "unit brief.service: failing again and again, wanted running"}, // it exits with 0
	} {
		m.sh(tt.before + `
			n=$(systemctl show -p NRestarts --value brief)
			timeout 60 sh -c "until [ \$(systemctl show -p NRestarts --value brief) -ge $((n + 2)) ]; do sleep 0.1; done"`)
		found, err := host.FailingUnits(t.Context(), m, "brief.service")
		if err != nil || len(found) != 1 || found[0].String() != tt.words {
			t.Errorf("%v, %v, want %q", found, err, tt.words)
		}
	}
	m.sh("systemctl stop brief; systemctl reset-failed brief || true")
	return m.converge(good, rec)
}

// testInterrupted cuts the connection at random moments of an Apply.
func (m *realMachine) testInterrupted(t *testing.T, rec host.Record) host.Record {
	rec = m.converge(m.units("3"), rec)
	start := time.Now()
	rec = m.converge(m.units("4"), rec)
	whole := time.Since(start)
	random := rand.New(rand.NewPCG(4, 2))
	rounds := 8
	if testing.Short() {
		rounds = 2
	}
	for i := range rounds {
		version := []string{"5", "6"}[i%2]
		want := m.units(version)
		changes := m.diff(want, rec)
		ctx, cancel := context.WithTimeout(t.Context(), time.Duration(random.Int64N(int64(whole))))
		_, err := host.Apply(ctx, m, want, changes, rec, host.Options{}) // without its record
		cancel()
		t.Logf("round %d: %v", i, err)
		rec = m.converge(want, rec)
		if got := m.sh("journalctl -q -o cat -u app-main -n 20 | grep ^app | tail -n 1"); got != "app "+version+" with setting "+version {
			t.Fatalf("round %d: running is %q, wanted version %s", i, got, version)
		}
	}
	var left string
	for deadline := time.Now().Add(10 * time.Second); time.Now().Before(deadline); time.Sleep(100 * time.Millisecond) {
		// The interrupted command may still be running.
		if left = m.sh("ls -d /run/k8s-from-scratch/staging.* /etc/app/.* /usr/local/bin/.* 2>/dev/null | grep -v '/\\.*$' || :"); left == "" {
			break
		}
	}
	if left != "" {
		t.Errorf("left behind: %s", left)
	}
	return rec
}

// testReboot checks that the applied state survives a reboot.
func (m *realMachine) testReboot(t *testing.T, want desired.State, rec host.Record) host.Record {
	rec = m.converge(want, rec)
	before := m.observe(want, rec).BootID
	m.sh("echo 1024 65535 >/proc/sys/net/ipv4/ip_local_port_range") // the network namespace survives the boot here
	if err := m.manager.Reboot(t.Context(), m.spec.ID); err != nil {
		t.Fatal(err)
	}
	m.awaitReady()
	var left []host.Change
	for deadline := time.Now().Add(20 * time.Second); ; time.Sleep(100 * time.Millisecond) {
		if left = m.diff(want, rec); len(left) == 0 || time.Now().After(deadline) {
			break
		}
	}
	if len(left) > 0 {
		t.Errorf("after a reboot: %s", host.Words(left))
	}
	if m.observe(want, rec).BootID == before {
		t.Error("the boot id is the one from before")
	}
	m.testHeldBoot()
	return rec
}

// testHeldBoot boots with a unit that never comes up, like a member of etcd whose certificate has expired. It holds back
// the last stage of cloud-init. An apply can mend it all the same.
func (m *realMachine) testHeldBoot() {
	m.t.Helper()
	m.sh(`printf '[Service]\nType=notify\nTimeoutStartSec=infinity\nExecStart=/bin/sleep infinity\n[Install]\nWantedBy=multi-user.target\n' >/etc/systemd/system/held.service
		systemctl -q enable held`)
	if err := m.manager.Reboot(m.t.Context(), m.spec.ID); err != nil {
		m.t.Fatal(err)
	}
	m.awaitReady()
	m.sh(`timeout 60 sh -c 'until [ -n "$(systemctl show -P Job cloud-final)" ] && [ "$(systemctl show -P ActiveState cloud-config)" = active ]; do sleep 0.1; done'`)
	ctx, cancel := context.WithTimeout(m.t.Context(), 40*time.Second)
	defer cancel()
	start := time.Now()
	if waited, err := host.AwaitBoot(ctx, m.Machine, func(string) {}); err != nil || !waited {
		m.t.Errorf("with a unit that does not come up: waited %t, %v", waited, err)
	}
	m.t.Logf("a boot that does not end was waited for %s", time.Since(start).Round(100*time.Millisecond))
	m.sh("systemctl -q disable --now held; rm /etc/systemd/system/held.service; systemctl daemon-reload")
}

func (m *realMachine) testRemove(t *testing.T, want desired.State) {
	m.sh("mkdir -p /var/lib/app/volume && mount -t tmpfs none /var/lib/app/volume && mkdir /var/lib/app/same && mount --bind /srv /var/lib/app/same && touch /srv/precious")
	if err := host.Remove(t.Context(), m, host.Removal{State: want, Dirs: []string{"/etc/app", "/var/lib/app"}}); err != nil {
		t.Fatal(err)
	}
	left := m.sh("ls -d /srv/precious; ls -d " + strings.Join(want.Paths(), " ") + " /etc/app /var/lib/app /etc/sysctl.d/90-k8s-* /etc/modules-load.d/k8s-* 2>/dev/null || :")
	if left != "/srv/precious" {
		t.Errorf("left: %s", left)
	}
	if got := m.sh("systemctl list-units --all --no-legend app-main.service notify.service other.service; pgrep -x sleep || :"); got != "" {
		t.Errorf("still known or running: %s", got)
	}
	if err := host.Remove(t.Context(), m, host.Removal{State: want, Dirs: []string{"/var/lib/app"}}); err != nil {
		t.Errorf("removing what is gone: %v", err)
	}
	var exit *remote.ExitError
	if _, err := m.Run(t.Context(), remote.Command{Script: "exit 3", Sudo: true}); !errors.As(err, &exit) || exit.Code != 3 {
		t.Errorf("exit status through sudo: %v", err)
	}
}
