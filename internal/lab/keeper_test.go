package lab

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"
)

// The test binary is also the daemon. These values say how the daemon behaves. It records each
// start in a file.
const (
	daemonDoes  = "KEEPER_TEST_DAEMON"
	daemonNotes = "KEEPER_TEST_NOTES"
)

func TestMain(m *testing.M) {
	if does := os.Getenv(daemonDoes); does != "" {
		os.Exit(fakeDaemon(does, os.Getenv(daemonNotes)))
	}
	os.Exit(m.Run())
}

func fakeDaemon(does, notes string) int {
	f, err := os.OpenFile(notes, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return 3
	}
	note := func() { _, _ = fmt.Fprintln(f, os.Getpid()) }
	if does == "refuse" {
		note()
		fmt.Fprintln(os.Stderr, "the port is taken")
		return 1
	}
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	defer stop()
	ctx, announce := Attend(ctx)
	announce()
	note() // from now on it can be asked to end
	if does == "die" {
		fmt.Fprintln(os.Stderr, "panic: dead")
		return 2
	}
	<-ctx.Done()
	_, _ = fmt.Fprintln(f, "ended")
	return 0
}

// kept is a keeper that runs.
type kept struct {
	*testing.T
	lab   *Lab
	notes string
	end   context.CancelFunc
	done  chan error
}

func keep(t *testing.T, does string) kept {
	t.Helper()
	dir := t.TempDir()
	k := kept{T: t, lab: &Lab{dir: dir}, notes: filepath.Join(dir, "notes"), done: make(chan error, 1)}
	t.Setenv(daemonDoes, does)
	t.Setenv(daemonNotes, k.notes)
	ctx, end := context.WithCancel(t.Context())
	k.end = end
	go func() { k.done <- k.lab.Keep(ctx, []string{os.Args[0]}) }()
	return k
}

// lives waits until the daemon has been started n times, and returns the process ids.
func (k kept) lives(n int) []int {
	k.Helper()
	var pids []int
	for deadline := time.Now().Add(5 * time.Minute); time.Now().Before(deadline); time.Sleep(5 * time.Millisecond) {
		raw, _ := os.ReadFile(k.notes)
		pids = nil
		for _, word := range strings.Fields(string(raw)) {
			if pid, err := strconv.Atoi(word); err == nil {
				pids = append(pids, pid)
			}
		}
		if len(pids) >= n {
			return pids
		}
	}
	k.Fatalf("the daemon was started %d times, want %d", len(pids), n)
	return nil
}

func (k kept) ended() error {
	k.Helper()
	select {
	case err := <-k.done:
		return err
	case <-time.After(5 * time.Minute):
		k.Fatal("the keeper does not end")
		return nil
	}
}

func (k kept) log() string {
	raw, _ := os.ReadFile(k.lab.file(logFile))
	return string(raw)
}

func TestDeadDaemonComesBack(t *testing.T) {
	k := keep(t, "serve")
	first := k.lives(1)[0]
	if pid, err := k.lab.running(); pid != os.Getpid() || err != nil {
		t.Errorf("the keeper is %d, %v", pid, err)
	}
	if err := k.lab.Keep(t.Context(), []string{"true"}); err == nil || !strings.Contains(err.Error(), "running already") {
		t.Errorf("a second keeper: %v", err)
	}
	if err := syscall.Kill(first, syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	k.lives(2)
	k.end()
	if err := k.ended(); err != nil {
		t.Error(err)
	}
	if raw, _ := os.ReadFile(k.notes); !strings.HasSuffix(string(raw), "ended\n") {
		t.Errorf("the second daemon was not asked to end: %q", raw)
	}
	if pid, err := k.lab.running(); pid != 0 || err != nil {
		t.Errorf("after its end the keeper is %d, %v", pid, err)
	}
	if log := k.log(); !strings.Contains(log, "signal: killed") || !strings.Contains(log, "started again") {
		t.Errorf("the log says %q", log)
	}
}

func TestDaemonThatNeverServes(t *testing.T) {
	k := keep(t, "refuse")
	if err := k.ended(); err == nil || !strings.Contains(err.Error(), "could not start") {
		t.Errorf("the keeper ended with %v", err)
	}
	if n := len(k.lives(1)); n != 1 {
		t.Errorf("it was started %d times", n)
	}
	if !strings.Contains(k.log(), "the port is taken") {
		t.Errorf("the log says %q", k.log())
	}
}

func TestDaemonThatDiesAgainAndAgain(t *testing.T) {
	defer func(first, longest time.Duration) { firstRest, longestRest = first, longest }(firstRest, longestRest)
	firstRest, longestRest = time.Millisecond, 2*time.Millisecond
	k := keep(t, "die")
	if err := k.ended(); err == nil || !strings.Contains(err.Error(), "in a row") {
		t.Errorf("the keeper ended with %v", err)
	}
	if n := len(k.lives(1)); n != 1+maxRestarts {
		t.Errorf("it was started %d times", n)
	}
}

func TestAnotherFormat(t *testing.T) {
	l := &Lab{dir: t.TempDir()}
	if s, err := l.readSettings(); err != nil || s.Format != format {
		t.Errorf("without a lab: %+v, %v", s, err)
	}
	if err := os.WriteFile(l.file(settingsFile), []byte(`{"access_key_id":"AKIA1","cache_dir":"/cache"}`), 0o600); err != nil {
		t.Fatal(err)
	}
	s, err := l.readSettings()
	if other := new(FormatError); !errors.As(err, &other) || other.Found != 0 || !strings.Contains(err.Error(), "k8s-lab down") || s.CacheDir != "/cache" {
		t.Errorf("of another version: %+v, %v", s, err)
	}
}

func TestLogParts(t *testing.T) {
	l := &Lab{dir: t.TempDir()}
	for _, name := range []string{"daemon-2026-01-02T03-04-05.000.log", "daemon-2026-01-01T03-04-05.000.log", "daemon.log", "calls.log"} {
		if err := os.WriteFile(l.file(name), nil, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	parts, err := l.logParts(logFile)
	if want := l.file("daemon-2026-01-01T03-04-05.000.log") + " " + l.file("daemon-2026-01-02T03-04-05.000.log") + " " + l.file("daemon.log"); err != nil || strings.Join(parts, " ") != want {
		t.Errorf("%v, %v", parts, err)
	}
}

// TestLogsRotate checks that a log of the lab stays within its maximum size and keeps its mode.
func TestLogsRotate(t *testing.T) {
	l := &Lab{dir: t.TempDir()}
	log := l.rotated(callsFile)
	line := []byte(strings.Repeat("x", 1<<20-1) + "\n")
	for range 5 * logMiB {
		if _, err := log.Write(line); err != nil {
			t.Fatal(err)
		}
	}
	if err := log.Close(); err != nil {
		t.Fatal(err)
	}
	for deadline := time.Now().Add(2 * time.Minute); ; time.Sleep(10 * time.Millisecond) { // older parts are removed in the background
		parts, err := l.logParts(callsFile)
		if err != nil {
			t.Fatal(err)
		}
		if len(parts) == 1+logBackups {
			for _, part := range parts {
				if info, err := os.Stat(part); err != nil || info.Size() > logMiB<<20 || info.Mode().Perm() != 0o600 {
					t.Errorf("%v, %v", info, err)
				}
			}
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("there are the parts %v", parts)
		}
	}
}
