package progress

import (
	"bytes"
	"errors"
	"regexp"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/creack/pty"
)

// Without a terminal a job prints at most one line every 30 seconds.
func TestLines(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var lines []string
		r := To(func(s string) { lines = append(lines, s) })
		var compiled atomic.Value
		compiled.Store("12 packages compiled")
		end := r.Job("building etcd", func() string { return compiled.Load().(string) })
		quiet := r.Quiet("fetching a module")
		time.Sleep(29 * time.Second)
		quiet()
		time.Sleep(46 * time.Second)
		compiled.Store("")
		time.Sleep(20 * time.Second)
		end(errors.New("no space"))
		want := []string{
			"building etcd",
			"building etcd: 30s, 12 packages compiled",
			"building etcd: 1m0s, 12 packages compiled",
			"building etcd: 1m30s",
			"building etcd: failed after 1m35s",
		}
		if !slices.Equal(lines, want) {
			t.Errorf("lines:\n%s\nwanted:\n%s", strings.Join(lines, "\n"), strings.Join(want, "\n"))
		}
	})
}

// A nil Reporter reports nothing.
func TestNobody(t *testing.T) {
	var r *Reporter
	r.Line("x")
	r.Job("x", nil)(nil)
	r.Quiet("x")()
}

// On a terminal a job has one line that is drawn repeatedly, and then its outcome.
func TestTerminal(t *testing.T) {
	screen, terminal, err := pty.Open()
	if err != nil {
		t.Skip(err)
	}
	defer screen.Close()
	if err := pty.Setsize(terminal, &pty.Winsize{Rows: 25, Cols: 80}); err != nil {
		t.Fatal(err)
	}
	r := New(terminal)
	if r.terminal == nil {
		t.Fatal("a terminal is not taken for one")
	}
	read := make(chan []byte)
	go func() {
		var out bytes.Buffer
		_, _ = out.ReadFrom(screen) // ends when the terminal is closed
		read <- out.Bytes()
	}()
	var drawn atomic.Int32
	end := r.Job("building Kubernetes 1.36.4 (kube-apiserver, kube-controller-manager, kube-scheduler, kubelet) from Go modules",
		func() string { drawn.Add(1); return "12 packages compiled" })
	for end := time.Now().Add(time.Minute); drawn.Load() < 2 && time.Now().Before(end); { // the first one is on the screen then
		time.Sleep(refresh)
	}
	r.Line("upstream cannot be reached")
	end(nil)
	r.Line("up")
	_ = terminal.Close()
	out := string(<-read)
	for _, want := range []string{`\ds, 12 packages compiled: building Kub`, "upstream cannot be reached\r\n", `\x1b\[`, `building Kubernetes .*: done in \S+\r\nup\r\n`} {
		if !regexp.MustCompile(want).MatchString(out) {
			t.Errorf("%s does not match %q", want, out)
		}
	}
}
