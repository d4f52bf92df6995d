package host

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/desired"
)

// Messages of apt 2.6 and dpkg 1.21.
const (
	listsTaken    = "E: Could not get lock /var/lib/apt/lists/lock. It is held by process %d (apt-get)\nE: Unable to lock directory /var/lib/apt/lists/\n"
	frontendTaken = "E: Could not get lock /var/lib/dpkg/lock-frontend. It is held by process %d (unattended-upgr)\n" +
		"N: Be aware that removing the lock file is not a solution and may break your system.\n" +
		"E: Unable to acquire the dpkg frontend lock (/var/lib/dpkg/lock-frontend), is another process using it?\n"
	archivesTaken = "E: Could not get lock /var/cache/apt/archives/lock - open (11: Resource temporarily unavailable)\n"
	dpkgTaken     = "dpkg: error: dpkg frontend lock was locked by another process with pid %d\nNote: removing the lock file is always wrong\n"
	unavailable   = "Err:1 http://deb.example/debian stable InRelease\n  503  Service Unavailable [IP: 192.0.2.1 80]\n" +
		"E: Failed to fetch http://deb.example/debian/dists/stable/InRelease  503  Service Unavailable [IP: 192.0.2.1 80]\n" +
		"E: The repository 'http://deb.example/debian stable InRelease' is not signed.\n"
	refused  = "E: Failed to fetch http://deb.example/debian/pool/web_1.deb  503  Service Unavailable [IP: 192.0.2.1 80]\n"
	notFound = "E: Failed to fetch http://deb.example/debian/pool/web_1.deb  404  Not Found [IP: 192.0.2.1 80]\n"
	broken   = "dpkg: error processing package web (--configure):\n installed web package post-installation script subprocess returned error exit status 1\n" +
		"Errors were encountered while processing:\n web\nE: Sub-process /usr/bin/dpkg returned an error code (1)\n"
	notOurs = "Errors were encountered while processing:\n other\nE: Sub-process /usr/bin/dpkg returned an error code (1)\n"
)

var wantWeb = desired.State{Packages: []string{"web"}}

// state writes state files for the stand-ins, from pairs of name and content; %d is this process. A stand-in sees the
// old content or the new one.
func (m *localMachine) state(pairs ...string) {
	m.t.Helper()
	for i := 0; i < len(pairs); i += 2 {
		m.write("state/.new", strings.ReplaceAll(pairs[i+1], "%d", fmt.Sprint(os.Getpid())))
		if err := os.Rename(m.file("state/.new"), m.file("state/"+pairs[i])); err != nil {
			m.t.Fatal(err)
		}
	}
}

// calls returns the calls of apt-get and dpkg, abbreviated.
func (m *localMachine) calls() string {
	var out []string
	for line := range strings.Lines(m.read("state/calls")) {
		words := strings.Fields(line)
		switch {
		case words[0] == "apt-get" && slices.Contains(words, "--fix-broken"):
			out = append(out, "fix")
		case words[0] == "apt-get" && slices.Contains(words, "update"):
			out = append(out, "update")
		case words[0] == "apt-get" && slices.Contains(words, "--download-only"):
			out = append(out, "fetch")
		case words[0] == "apt-get":
			out = append(out, "install")
		case words[0] == "dpkg":
			out = append(out, "configure")
		}
	}
	return strings.Join(out, " ")
}

// install applies wantWeb and returns the progress messages. Whenever one contains until, it calls
// lift.
func (m *localMachine) install(ctx context.Context, until string, lift func()) (said []string, err error) {
	changes := m.diff(wantWeb, Record{}) //nolint:contextcheck // ctx bounds only the apply
	if got := Words(changes); got != "package web: not installed" {
		m.t.Fatalf("difference: %s", got)
	}
	_, err = m.layout().apply(ctx, m, wantWeb, changes, Record{}, Options{Progress: func(s string) {
		said = append(said, s)
		if until != "" && strings.Contains(s, until) {
			lift()
		}
	}})
	return said, err
}

// TestPackages checks that one apply installs packages, whatever the machine is busy with.
func TestPackages(t *testing.T) {
	const viaLists = "install configure update install"
	for _, tt := range []struct {
		name  string
		state []string // name, content, ...
		until string   // the message at which the fault ends,
		lifts string   // by removing this file
		says  string
		calls string // a regular expression: a stand-in may be called again before the fault ends
	}{
		{name: "lists there", state: []string{"lists", ""}, says: "installing packages web", calls: "install"},
		{name: "new machine", says: "fetching the package lists", calls: viaLists},
		{name: "lists too old", state: []string{"lists", "", "gone", notFound}, calls: viaLists},
		{name: "half installed", state: []string{"lists", "", "package.web", "half-installed"}, calls: "install"},
		{name: "half configured", state: []string{"lists", "", "package.web", "half-configured"}, calls: "install"},
		{name: "dpkg interrupted", state: []string{"lists", "", "interrupted", ""}, calls: viaLists},
		{name: "unmet dependencies", state: []string{"lists", "", "unmet", ""}, calls: viaLists + " fix install"},
		{name: "foreign package broken", state: []string{"lists", "", "broken", notOurs},
			says: "packages web are installed, although apt-get fails: Sub-process", calls: viaLists + " fix"},
		{name: "lists locked", state: []string{"lock.update", listsTaken}, until: "waiting: ", lifts: "lock.update",
			says: "holds /var/lib/apt/lists/lock", calls: "install configure update( update)+ install"},
		{name: "dpkg locked for apt-get", state: []string{"lists", "", "lock.install", frontendTaken}, until: "waiting: ", lifts: "lock.install",
			says: "holds /var/lib/dpkg/lock-frontend", calls: "install( install)+"},
		{name: "archives locked", state: []string{"lists", "", "lock.install", archivesTaken}, until: "waiting: ", lifts: "lock.install",
			says: "waiting: another process holds /var/cache/apt/archives/lock", calls: "install( install)+"},
		{name: "dpkg locked for dpkg", state: []string{"lock.configure", dpkgTaken}, until: "waiting: ", lifts: "lock.configure",
			says: "holds dpkg's lock", calls: "install configure( configure)+ update install"},
		{name: "archive unavailable", state: []string{"archive", unavailable}, until: "waiting for the package archive", lifts: "archive",
			says:  "waiting for the package archive: Failed to fetch http://deb.example/debian/dists/stable/InRelease  503",
			calls: viaLists + "( configure update install)+"},
		{name: "package unavailable", state: []string{"lists", "", "pool", refused}, until: "waiting for the package archive", lifts: "pool",
			says:  "waiting for the package archive: Failed to fetch http://deb.example/debian/pool/web_1.deb  503",
			calls: viaLists + "( configure update install)+"},
		{name: "part of the archive unavailable", state: []string{"lists", "", "gone", refused, "archive", unavailable}, until: "waiting for", lifts: "archive",
			calls: viaLists + "( configure update install)+"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			m := newLocalMachine(t)
			m.state(tt.state...)
			said, err := m.install(t.Context(), tt.until, func() { _ = os.Remove(m.file("state/" + tt.lifts)) })
			if err != nil {
				t.Fatal(err)
			}
			all := strings.Join(said, "\n")
			if !strings.Contains(all, tt.says) {
				t.Errorf("nothing said %q:\n%s", tt.says, all)
			}
			if strings.Contains(strings.Join(tt.state, ""), "%d") && !strings.Contains(all, fmt.Sprintf("(process %d", os.Getpid())) {
				t.Errorf("no message says which process has the lock:\n%s", all)
			}
			if got := m.calls(); !regexp.MustCompile("^" + tt.calls + "$").MatchString(got) {
				t.Errorf("calls: %s\nwant:  %s", got, tt.calls)
			}
			if left := m.diff(wantWeb, Record{}); len(left) > 0 {
				t.Errorf("left: %s", Words(left))
			}
		})
	}
}

// TestPackagesRefused checks that a hopeless installation fails with the step, the condition and
// who is responsible, and that anything else is retried until the deadline.
func TestPackagesRefused(t *testing.T) {
	for _, tt := range []struct {
		name  string
		state []string
		says  string
		once  bool // nothing to wait for
	}{
		{"lock never released", []string{"lists", "", "lock.install", frontendTaken}, ") holds /var/lib/dpkg/lock-frontend, still after", false},
		{"archive unavailable", []string{"archive", unavailable},
			"Failed to fetch http://deb.example/debian/dists/stable/InRelease  503  Service Unavailable [IP: 192.0.2.1 80]", false},
		{"archive lacks its lists", []string{"archive", strings.ReplaceAll(unavailable, "503  Service Unavailable", "404  Not Found")},
			"Failed to fetch http://deb.example/debian/dists/stable/InRelease  404  Not Found", true},
		{"archive stalled", []string{"stalled", ""}, "apt-get is not done after ", false},
		{"package broken", []string{"lists", "", "package.web", "half-configured", "broken.web", broken},
			"dpkg: error processing package web (--configure):\n installed web package post-installation script subprocess returned error exit status 1", true},
		{"no such package", []string{"lists", "", "lock.install", "E: Unable to locate package web\n"}, "Unable to locate package web", true},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			m := newLocalMachine(t)
			m.state(tt.state...)
			if tt.state[0] != "stalled" { // a slow stand-in is no stalled one
				shim := t.TempDir()
				if err := os.WriteFile(filepath.Join(shim, "timeout"), []byte("#!/bin/sh\nshift\nexec \"$@\"\n"), 0o755); err != nil {
					t.Fatal(err)
				}
				m.path = shim + ":" + m.path
			}
			left := reportTime + 8*time.Second
			if tt.once {
				left = 10 * time.Minute
			}
			start := time.Now()
			_, err := m.install(announced{t.Context(), left}, "", nil)
			var apply *ApplyError
			if !errors.As(err, &apply) || apply.Step.Kind != StepPackages || apply.Step.Target != "web" || !strings.Contains(err.Error(), tt.says) {
				t.Errorf("error is %v, want one that says %q", err, tt.says)
			}
			if d := time.Since(start); tt.once && d > 2*time.Minute {
				t.Errorf("it took %s", d)
			}
		})
	}
}

// TestArchivePatience checks that only the time in which the archive fails counts against it, and
// not the time another process holds a lock. The clock is simulated; every line of the plan is a
// command, the seconds it takes, its exit status and its output.
func TestArchivePatience(t *testing.T) {
	const lock, bad = "E: Could not get lock /var/lib/apt/lists/lock. It is held by process 1 (apt-get)", "E: Failed to fetch http://deb.example/x  503  Service Unavailable"
	step := func(command string, seconds, code int, says string) string {
		return fmt.Sprintf("%s|%d|%d|%s\n", command, seconds, code, says)
	}
	none := step("install", 1, 1, "E: no lists")
	round := step("dpkg", 1, 0, "") + step("update", 20, 1, bad) + step("install", 1, 1, "E: no lists")
	for _, tt := range []struct {
		name, plan, want string
	}{
		{"a lock before the first complaint", none + step("dpkg", 400, 1, lock) + round + step("dpkg", 1, 0, "") + step("update", 1, 0, "") + step("install", 1, 0, ""), "installed"},
		{"a lock after it", none + round + step("dpkg", 400, 1, lock) + round + step("dpkg", 1, 0, "") + step("update", 1, 0, "") + step("install", 1, 0, ""), "installed"},
		{"the archive fails all the time", none + strings.Repeat(round, 20), "Failed to fetch http://deb.example/x  503"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			dir := t.TempDir()
			for name, content := range map[string]string{"clock": "1000\n", "plan": tt.plan, "at": "0\n"} {
				if err := os.WriteFile(filepath.Join(dir, name), []byte(content), 0o644); err != nil {
					t.Fatal(err)
				}
			}
			script := "set -u\n" + packageFunctions + `
packages=x limit=100000 deadline=100000
cd "$1" || exit 1
date() { cat clock; }
pass() { echo $(($(cat clock) + $1)) >clock; }
sleep() { pass 2; }
progress() { :; }
remaining() { left=1000; }
die() { printf '%s\n' "$4"; exit 1; }
packages_there() { :; }
timeout() {
	n=$(($(cat at) + 1))
	echo $n >at
	line=$(sed -n ${n}p plan)
	case " $* " in
	*"${line%%|*}"*) ;;
	*) echo "E: not as planned: $* for $line"; return 1 ;;
	esac
	line=${line#*|}
	pass "${line%%|*}"
	line=${line#*|}
	printf '%s\n' "${line#*|}"
	return "${line%%|*}"
}
apt_install web
echo installed
`
			out, _ := exec.CommandContext(t.Context(), "sh", "-c", script, "sh", dir).CombinedOutput()
			if !strings.Contains(string(out), tt.want) {
				t.Errorf("it says %q, wanted %q", out, tt.want)
			}
		})
	}
}

// TestPackageStartsItsService checks that a service started by its package, and so with the
// package's configuration, is restarted with ours.
func TestPackageStartsItsService(t *testing.T) {
	m := newLocalMachine(t)
	config, unit := m.file("etc/app.conf"), []byte("[Service]\nExecStart=/bin/true\n")
	m.state("lists", "", "starts.web", "", "loaded.web.service", string(unit))
	m.write("units/web.service", string(unit))
	if err := os.MkdirAll(filepath.Dir(config), 0o755); err != nil {
		t.Fatal(err)
	}
	m.write("etc/app.conf", "the package's\n")
	want := wantWeb
	want.Files = []desired.File{{Path: config, Mode: 0o644, Content: []byte("ours\n")}, {Path: m.file("units/web.service"), Mode: 0o644, Content: unit}}
	want.Units = []desired.Unit{{Name: "web.service", Enabled: true, Active: true, ReloadOn: []string{config}}}
	m.converge(want, Record{})
	if n := m.starts("web.service"); n != 2 {
		t.Errorf("it was started %d times, want once by its package and once by the apply", n)
	}
	if got := m.read("state/reloads"); got != "" {
		t.Errorf("reloaded: %s", got)
	}
	if got := m.read("state/config.web.service"); got != "ours\n" {
		t.Errorf("it runs with %q", got)
	}
}
