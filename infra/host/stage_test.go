package host

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/desired"
)

// staging is a staging under way on a local machine.
type staging struct {
	cmd *exec.Cmd
	out bytes.Buffer
}

// startStaging starts what systemd would run: the script with "programs" or "packages".
func (m *localMachine) startStaging(want desired.State, what string) *staging {
	m.t.Helper()
	script, err := m.layout().stageScript(want)
	if err != nil {
		m.t.Fatal(err)
	}
	script = strings.ReplaceAll(script, "--speed-time 20 ", "--speed-time 600 ")         // on a slow computer a download is held back for longer
	s := &staging{cmd: exec.Command("nice", "-n", "10", "sh", "-c", script, "sh", what)} //nolint:noctx // killed with its group
	s.cmd.Env = []string{"PATH=" + m.path, "FAKE_STATE=" + m.file("state"), fmt.Sprintf("stage_looks=%d", max(1, m.looks)), "stage_rounds=2"}
	s.cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	s.cmd.Stdout, s.cmd.Stderr = &s.out, &s.out
	if err := s.cmd.Start(); err != nil {
		m.t.Fatal(err)
	}
	m.t.Cleanup(s.kill)
	return s
}

func (s *staging) kill() {
	_ = syscall.Kill(-s.cmd.Process.Pid, syscall.SIGKILL)
	_ = s.cmd.Wait()
}

// stage stages to the end and returns what the script printed.
func (m *localMachine) stage(want desired.State, what string) string {
	m.t.Helper()
	s := m.startStaging(want, what)
	if err := s.cmd.Wait(); err != nil {
		m.t.Fatalf("staging failed, which nobody would repair: %v\n%s", err, s.out.String())
	}
	return s.out.String()
}

// appear waits until a file is there and has content.
func (m *localMachine) appear(name string) {
	m.t.Helper()
	m.await(name, func() bool { return m.read(name) != "" })
}

// await waits until something is there.
func (m *localMachine) await(what string, there func() bool) {
	m.t.Helper()
	for range 2400 {
		if there() {
			return
		}
		time.Sleep(50 * time.Millisecond)
	}
	m.t.Fatalf("%s does not appear", what)
}

// wantClean fails the test if an apply has left anything of a download.
func (m *localMachine) wantClean() {
	m.t.Helper()
	if left, _ := filepath.Glob(m.file("cache/*")); len(left) > 0 {
		m.t.Errorf("left behind: %v", left)
	}
}

func TestStaged(t *testing.T) {
	m, web := newLocalMachine(t), newMirror(t)
	want := appState(t, m, web, "1")
	said := m.stage(want, "programs")
	tools := want.Binaries[1].SHA256
	if m.read("cache/"+tools+".unpacked/bin/two") != "two 1" || m.read("cache/"+want.Binaries[0].SHA256) == "" {
		t.Fatalf("not everything was staged:\n%s", said)
	}
	for _, p := range []string{"bin", "opt", "etc", "units", "lib"} {
		if entries, _ := os.ReadDir(m.file(p)); len(entries) > 0 {
			t.Errorf("staging has put something into %s: %v", p, entries)
		}
	}
	if conf := m.read("tmpfiles/k8s-from-scratch.conf"); conf != "e "+m.file("cache")+" - - - 1d\n" {
		t.Errorf("downloads that nobody takes stay: %q", conf)
	}
	web.Close()
	var steps []string
	changes := m.diff(want, Record{})
	rec, err := m.layout().apply(t.Context(), m, want, changes, Record{}, Options{Progress: func(s string) { steps = append(steps, s) }})
	if err != nil {
		t.Fatal(err)
	}
	if left := m.diff(want, rec); len(left) > 0 {
		t.Errorf("left: %s", Words(left))
	}
	if all := strings.Join(steps, "\n"); strings.Contains(all, "downloading") || strings.Contains(all, "unpacking") {
		t.Errorf("the apply did again what had been done ahead:\n%s", all)
	}
	m.wantClean()
	if m.stage(want, "programs"); web.count("/app-1") != 1 || web.count("/tools-1.tar.gz") != 1 {
		t.Errorf("a staging after the apply downloads: app %d, tools %d", web.count("/app-1"), web.count("/tools-1.tar.gz"))
	}
	m.wantClean()
	// A machine that is made of an image of this one has what is on its disk, and nothing of /run.
	if err := os.RemoveAll(m.file("run")); err != nil {
		t.Fatal(err)
	}
	if said := m.stage(want, "programs"); said != "" {
		t.Errorf("a staging on a machine with all programs in its image: %s", said)
	}
	m.wantClean()
}

// TestStagingFails checks that an apply converges whatever has become of the staging, and how often
// it had to download what was lost.
func TestStagingFails(t *testing.T) {
	app := func(m *localMachine, want desired.State) string { return m.file("cache/" + want.Binaries[0].SHA256) }
	tools := func(m *localMachine, want desired.State) string { return m.file("cache/" + want.Binaries[1].SHA256) }
	must := func(t *testing.T, err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	for _, tt := range []struct {
		name       string
		before     func(web *mirror)
		after      func(t *testing.T, m *localMachine, web *mirror, want desired.State)
		app, tools int // requests in all
	}{
		{"wrong bytes", func(web *mirror) { web.add("/app-1", []byte("malware")) }, func(t *testing.T, m *localMachine, web *mirror, want desired.State) {
			if _, err := os.Stat(app(m, want)); err == nil {
				t.Error("the wrong download is there")
			}
			web.add("/app-1", []byte("#!/bin/sh\necho app 1\n"))
		}, 2, 1},
		{"not there", func(web *mirror) { web.remove("/app-1") }, func(_ *testing.T, _ *localMachine, web *mirror, _ desired.State) {
			web.add("/app-1", []byte("#!/bin/sh\necho app 1\n"))
		}, 2, 1},
		{"spoilt afterwards", func(*mirror) {}, func(t *testing.T, m *localMachine, _ *mirror, want desired.State) {
			must(t, os.WriteFile(app(m, want), []byte("spoilt"), 0o600))
		}, 2, 1},
		{"archive spoilt afterwards", func(*mirror) {}, func(t *testing.T, m *localMachine, _ *mirror, want desired.State) {
			must(t, os.WriteFile(tools(m, want), []byte("spoilt"), 0o600))
		}, 1, 2},
		{"unpacked file gone", func(*mirror) {}, func(t *testing.T, m *localMachine, _ *mirror, want desired.State) {
			must(t, os.Remove(tools(m, want)+".unpacked/bin/one"))
		}, 1, 1},
		{"rebooted, and what was unpacked is spoilt", func(*mirror) {}, func(t *testing.T, m *localMachine, _ *mirror, want desired.State) {
			must(t, os.WriteFile(tools(m, want)+".unpacked/bin/one", nil, 0o600))
			must(t, os.RemoveAll(m.file("run")))
		}, 1, 1},
		{"tar was killed", func(*mirror) {}, func(t *testing.T, m *localMachine, _ *mirror, want desired.State) {
			must(t, os.Rename(tools(m, want)+".unpacked", tools(m, want)+".unpacked.part"))
			must(t, os.Remove(tools(m, want)+".unpacked.part/bin/one"))
			m.write("run/downloads/"+want.Binaries[1].SHA256, "")
		}, 1, 1},
		{"part of another file", func(web *mirror) { web.remove("/app-1") }, func(t *testing.T, m *localMachine, web *mirror, want desired.State) {
			must(t, os.WriteFile(app(m, want)+".part", []byte("#!/bin/bash"), 0o600))
			web.add("/app-1", []byte("#!/bin/sh\necho app 1\n"))
		}, 3, 1},
		{"part that is longer than the file", func(web *mirror) { web.remove("/app-1") }, func(t *testing.T, m *localMachine, web *mirror, want desired.State) {
			must(t, os.WriteFile(app(m, want)+".part", bytes.Repeat([]byte("x"), 100), 0o600))
			web.add("/app-1", []byte("#!/bin/sh\necho app 1\n"))
		}, 3, 1},
		{"part that is the whole file", func(web *mirror) { web.remove("/app-1") }, func(t *testing.T, m *localMachine, web *mirror, want desired.State) {
			must(t, os.WriteFile(app(m, want)+".part", []byte("#!/bin/sh\necho app 1\n"), 0o600))
			web.add("/app-1", []byte("#!/bin/sh\necho app 1\n"))
		}, 2, 1},
		{"cache lost", func(*mirror) {}, func(t *testing.T, m *localMachine, _ *mirror, _ desired.State) {
			must(t, os.RemoveAll(m.file("cache")))
		}, 2, 2},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			m, web := newLocalMachine(t), newMirror(t)
			want := appState(t, m, web, "1")
			tt.before(web)
			m.stage(want, "programs")
			tt.after(t, m, web, want)
			m.converge(want, Record{})
			if got := m.read("opt/bin/one") + m.read("bin/app"); got != "one 1#!/bin/sh\necho app 1\n" {
				t.Errorf("installed: %q", got)
			}
			if a, b := web.count("/app-1"), web.count("/tools-1.tar.gz"); a != tt.app || b != tt.tools {
				t.Errorf("requests: app %d, tools %d; want %d and %d", a, b, tt.app, tt.tools)
			}
			m.wantClean()
		})
	}
}

// TestStagingKilled kills a staging in the middle of a download: the apply downloads only the rest.
func TestStagingKilled(t *testing.T) {
	m, web := newLocalMachine(t), newMirror(t)
	want := appState(t, m, web, "1")
	want.Binaries[0].URL, want.Binaries[0].SHA256 = web.add("/app-1", bytes.Repeat([]byte("#!/bin/sh\n"), 1000))
	web.holdBack("/app-1", make(chan struct{}))
	s := m.startStaging(want, "programs")
	part := "cache/" + want.Binaries[0].SHA256 + ".part"
	m.appear(part)
	s.kill()
	half := m.read(part)
	web.holdBack("/app-1", nil)
	m.converge(want, Record{})
	if len(half) == 0 || len(half) >= 10000 || web.count("/app-1") != 2 || web.ranges["/app-1"] != 1 {
		t.Errorf("%d bytes were there; then %d requests, %d of them for the rest", len(half), web.count("/app-1"), web.ranges["/app-1"])
	}
	m.wantClean()
}

// TestApplyDuringStaging checks that an apply waits for a staging's download that it needs itself,
// and for no other one.
func TestApplyDuringStaging(t *testing.T) {
	m, web := newLocalMachine(t), newMirror(t)
	want := appState(t, m, web, "1")
	noise := make([]byte, 100<<10)
	_, _ = rand.NewChaCha8([32]byte{}).Read(noise) // so that curl does not keep all of the archive in its buffer
	want.Binaries[1].URL, want.Binaries[1].SHA256 = web.add("/tools-1.tar.gz",
		tarball(t, map[string]string{"./bin/one": "one 1", "./bin/two": "two 1", "noise": string(noise)}))
	release := make(chan struct{})
	web.holdBack("/tools-1.tar.gz", release)
	s := m.startStaging(want, "programs")
	m.appear("cache/" + want.Binaries[1].SHA256 + ".part")
	if p, err := syscall.Getpriority(syscall.PRIO_PGRP, s.cmd.Process.Pid); err != nil || 20-p < 10 {
		t.Fatalf("the staging has the nice value %d: %v", 20-p, err)
	}

	other := want
	other.Binaries = want.Binaries[:1]
	rec := m.converge(other, Record{})
	if p, err := syscall.Getpriority(syscall.PRIO_PGRP, s.cmd.Process.Pid); err != nil || 20-p != 0 {
		t.Errorf("something waits for the staging, and its nice value is %d: %v", 20-p, err)
	}
	close(release)
	m.converge(want, rec)
	if err := s.cmd.Wait(); err != nil {
		t.Error(err)
	}
	if a, b := web.count("/app-1"), web.count("/tools-1.tar.gz"); a != 1 || b != 1 {
		t.Errorf("requests: app %d, tools %d; want one each\n%s", a, b, s.out.String())
	}
	m.wantClean()
}

func TestStagingNeedsRoom(t *testing.T) {
	m, web := newLocalMachine(t), newMirror(t)
	want := appState(t, m, web, "1")
	shim := t.TempDir()
	if err := os.WriteFile(filepath.Join(shim, "df"), []byte("#!/bin/sh\necho head\necho dev 9000000 8000000 1000000 88% /\n"), 0o755); err != nil {
		t.Fatal(err)
	}
	m.path = shim + ":" + m.path
	said := m.stage(want, "programs")
	m.stage(wantWeb, "packages")
	if web.count("/app-1") != 0 || m.calls() != "" || !strings.Contains(said, "less than 2097152 KiB are free") {
		t.Errorf("%d downloads, %q\n%s", web.count("/app-1"), m.calls(), said)
	}

	// The file system grows to the size of the volume.
	grows := "#!/bin/sh\necho head\nif [ -e " + m.file("looked") + " ]; then echo dev 9 8 3000000 88% /; else echo dev 9 8 1000000 88% /; fi\n: >" + m.file("looked") + "\n"
	if err := os.WriteFile(filepath.Join(shim, "df"), []byte(grows), 0o755); err != nil {
		t.Fatal(err)
	}
	m.looks = 2
	if said := m.stage(want, "programs"); web.count("/app-1") != 1 {
		t.Errorf("%d downloads\n%s", web.count("/app-1"), said)
	}
}

// TestStagedOnce checks that a staging does not ask again for what a server has refused, while it asks
// again for what it could not get.
func TestStagedOnce(t *testing.T) {
	m, web := newLocalMachine(t), newMirror(t)
	want := appState(t, m, web, "1")
	web.add("/app-1", []byte("malware"))
	want.Binaries[1].URL = "http://127.0.0.1:1/tools-1.tar.gz" // nobody listens
	said := m.stage(want, "programs")
	if n := strings.Count(said, "Failed to connect"); web.count("/app-1") != 1 || n < 2 {
		t.Errorf("%d and %d requests\n%s", web.count("/app-1"), n, said)
	}
}

// TestOldDownloads checks that an apply removes what was left over a day ago, and nothing else.
func TestOldDownloads(t *testing.T) {
	m, web := newLocalMachine(t), newMirror(t)
	want := appState(t, m, web, "1")
	for _, name := range []string{"cache/old", "cache/old.part", "cache/new.part", "cache/old.unpacked/x"} {
		if err := os.MkdirAll(filepath.Dir(m.file(name)), 0o755); err != nil {
			t.Fatal(err)
		}
		m.write(name, "x")
	}
	for _, name := range []string{"cache/old", "cache/old.part", "cache/old.unpacked"} {
		day := time.Now().Add(-25 * time.Hour)
		if err := os.Chtimes(m.file(name), day, day); err != nil {
			t.Fatal(err)
		}
	}
	m.converge(want, Record{})
	if left, _ := filepath.Glob(m.file("cache/*")); len(left) != 1 || !strings.HasSuffix(left[0], "/new.part") {
		t.Errorf("left: %v", left)
	}
}

func TestStagedPackages(t *testing.T) {
	t.Run("in time", func(t *testing.T) {
		t.Parallel()
		m := newLocalMachine(t)
		m.stage(wantWeb, "packages")
		if got := m.calls(); got != "update fetch" {
			t.Errorf("staging calls: %s", got)
		}
		if m.read("state/package.web") != "" {
			t.Error("staging has installed a package")
		}
		if _, err := m.install(t.Context(), "", nil); err != nil {
			t.Fatal(err)
		}
		if got := m.calls(); got != "update fetch install" {
			t.Errorf("calls: %s", got)
		}
	})
	t.Run("under way", func(t *testing.T) {
		t.Parallel()
		m := newLocalMachine(t)
		m.state("lock.update", listsTaken)
		s := m.startStaging(wantWeb, "packages")
		m.await("the update", func() bool { return strings.Contains(m.calls(), "update") })
		said, err := m.install(t.Context(), "being downloaded ahead", func() { _ = os.Remove(m.file("state/lock.update")) })
		if err != nil {
			t.Fatal(err)
		}
		_ = s.cmd.Wait()
		if got := m.calls(); strings.Count(got, "fetch") != 1 || !strings.HasSuffix(got, "update fetch install") {
			t.Errorf("calls: %s\nsaid %q", got, said)
		}
	})
	t.Run("installed already", func(t *testing.T) {
		t.Parallel()
		m := newLocalMachine(t)
		m.state("package.web", "installed")
		if said := m.stage(wantWeb, "packages"); m.calls() != "" {
			t.Errorf("calls: %s\n%s", m.calls(), said)
		}
	})
	t.Run("archive refuses", func(t *testing.T) {
		t.Parallel()
		m := newLocalMachine(t)
		m.state("archive", unavailable)
		if said := m.stage(wantWeb, "packages"); !strings.Contains(said, "503  Service Unavailable") {
			t.Errorf("it says %q", said)
		}
		_ = os.Remove(m.file("state/archive"))
		if _, err := m.install(t.Context(), "", nil); err != nil {
			t.Fatal(err)
		}
	})
	t.Run("killed", func(t *testing.T) {
		t.Parallel()
		m := newLocalMachine(t)
		m.state("stalled", "")
		s := m.startStaging(wantWeb, "packages")
		m.appear("state/calls")
		s.kill()
		_ = os.Remove(m.file("state/stalled"))
		if _, err := m.install(t.Context(), "", nil); err != nil {
			t.Fatal(err)
		}
	})
}
