package host

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"context"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/desired"
	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/remote"
)

// localMachine runs the scripts with this machine's sh, coreutils, tar and curl on paths below a
// temporary directory. Only systemctl is a stand-in; the tests against real machines are in
// internal/e2e/hostengine.
type localMachine struct {
	t     *testing.T
	root  string
	trips atomic.Int32
	cut   int64 // when set, standard input after the script ends after that many bytes
	path  string
	group atomic.Int32 // process group of the script that runs
	looks int          // how often a staging looks for free space; zero means once
}

func newLocalMachine(t *testing.T) *localMachine {
	t.Helper()
	if os.Getuid() != 0 {
		t.Skip("needs root: installed files belong to root")
	}
	m := &localMachine{t: t, root: t.TempDir()}
	shim, err := filepath.Abs("testdata")
	if err != nil {
		t.Fatal(err)
	}
	m.path = shim + ":" + os.Getenv("PATH")
	for _, d := range []string{"units", "state", "bin"} {
		if err := os.MkdirAll(m.file(d), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	return m
}

func (m *localMachine) file(name string) string { return filepath.Join(m.root, name) }

func (m *localMachine) layout() layout {
	return layout{
		root: m.root, lib: m.file("lib"), cache: m.file("cache"), run: m.file("run"),
		sysctl: m.file("sysctl.d"), modules: m.file("modules-load.d"),
		tmpfiles: m.file("tmpfiles"), units: m.file("units"), foreign: []string{m.file("control"), m.file("units"), m.file("runtime")},
	}
}

func (m *localMachine) Name() string { return "local-0" }

// announced is a context whose deadline is always as far away. So it never ends, and a late report is heard, too.
type announced struct {
	context.Context
	left time.Duration
}

func (a announced) Deadline() (time.Time, bool) { return time.Now().Add(a.left), true }

func (m *localMachine) Run(ctx context.Context, c remote.Command) (remote.Output, error) {
	m.trips.Add(1)
	cmd := exec.CommandContext(context.WithoutCancel(ctx), "sh", "-c", c.Script) // the whole group is killed below
	cmd.Env = []string{"PATH=" + m.path, "FAKE_UNITS=" + m.file("units"), "FAKE_STATE=" + m.file("state"),
		"FAKE_CONFIG=" + m.file("etc/app.conf")}
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	if c.Stdin != nil {
		cmd.Stdin = c.Stdin
		if m.cut > 0 {
			cmd.Stdin = io.LimitReader(c.Stdin, m.cut)
		}
	}
	var stdout, stderr bytes.Buffer
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	if c.Tee != nil {
		cmd.Stdout = io.MultiWriter(&stdout, c.Tee)
	}
	if err := cmd.Start(); err != nil {
		return remote.Output{}, err
	}
	m.group.Store(int32(cmd.Process.Pid)) //nolint:gosec // a process id
	stop := context.AfterFunc(ctx, func() { _ = syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) })
	err := cmd.Wait()
	stop()
	out := remote.Output{Stdout: stdout.Bytes(), Stderr: stderr.Bytes()}
	switch {
	case ctx.Err() != nil:
		return out, ctx.Err()
	case err != nil:
		return out, &remote.ExitError{Machine: m.Name(), Code: cmd.ProcessState.ExitCode(), Stderr: stderr.String()}
	}
	return out, nil
}

// signal ends the script that runs, as the shutdown of its machine does.
func (m *localMachine) signal() error { return syscall.Kill(-int(m.group.Load()), syscall.SIGTERM) }

func (m *localMachine) write(name, content string) {
	m.t.Helper()
	if err := os.WriteFile(m.file(name), []byte(content), 0o644); err != nil {
		m.t.Fatal(err)
	}
}

func (m *localMachine) read(name string) string {
	b, err := os.ReadFile(m.file(name))
	if err != nil {
		return ""
	}
	return string(b)
}

// starts returns how often a unit was started.
func (m *localMachine) starts(unit string) int {
	return strings.Count(m.read("state/runs."+unit), "\n")
}

func (m *localMachine) observe(want desired.State, rec Record) Observation {
	m.t.Helper()
	obs, err := m.layout().observe(m.t.Context(), m, want, rec)
	if err != nil {
		m.t.Fatal(err)
	}
	return obs
}

func (m *localMachine) diff(want desired.State, rec Record) []Change {
	m.t.Helper()
	return m.layout().diff(want, m.observe(want, rec), rec)
}

// converge observes, compares and applies, and fails the test unless the machine is then as wanted.
func (m *localMachine) converge(want desired.State, rec Record) Record {
	m.t.Helper()
	rec, err := m.layout().apply(m.t.Context(), m, want, m.diff(want, rec), rec, Options{})
	if err != nil {
		m.t.Fatal(err)
	}
	if left := m.diff(want, rec); len(left) > 0 {
		m.t.Fatalf("not as wanted after apply: %s", Words(left))
	}
	return rec
}

// mirror serves downloads and counts them.
type mirror struct {
	*httptest.Server
	mu       sync.Mutex
	files    map[string][]byte
	truncate map[string]bool
	hits     map[string]int
	ranges   map[string]int             // requests for a part, among the hits
	hold     map[string]<-chan struct{} // sends half, and the rest when the channel is closed
	delay    time.Duration
}

func newMirror(t *testing.T) *mirror {
	m := &mirror{files: map[string][]byte{}, truncate: map[string]bool{}, hits: map[string]int{}, ranges: map[string]int{}, hold: map[string]<-chan struct{}{}}
	m.Server = httptest.NewServer(m)
	t.Cleanup(m.Close)
	return m
}

// holdBack makes the rest of a file be sent when the channel is closed; nil: at once.
func (m *mirror) holdBack(path string, until <-chan struct{}) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.hold[path] = until
}

// remove makes nothing be served at a path.
func (m *mirror) remove(path string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	delete(m.files, path)
}

func (m *mirror) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	m.mu.Lock()
	content, ok := m.files[r.URL.Path]
	cut, hold, delay := m.truncate[r.URL.Path], m.hold[r.URL.Path], m.delay
	m.hits[r.URL.Path]++
	if r.Header.Get("Range") != "" {
		m.ranges[r.URL.Path]++
	}
	m.mu.Unlock()
	time.Sleep(delay)
	if !ok {
		http.NotFound(w, r)
		return
	}
	if cut { // promise more than is sent
		w.Header().Set("Content-Length", "1000000")
		_, _ = w.Write(content)
		_ = http.NewResponseController(w).Flush()
		panic(http.ErrAbortHandler)
	}
	if hold != nil {
		w.Header().Set("Content-Length", strconv.Itoa(len(content)))
		_, _ = w.Write(content[:len(content)/2])
		_ = http.NewResponseController(w).Flush()
		select {
		case <-hold:
			_, _ = w.Write(content[len(content)/2:])
		case <-r.Context().Done():
		}
		return
	}
	http.ServeContent(w, r, "", time.Time{}, bytes.NewReader(content))
}

func (m *mirror) add(path string, content []byte) (url, digest string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.files[path] = content
	return m.URL + path, desired.Sum(content)
}

func (m *mirror) count(path string) int {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.hits[path]
}

func tarball(t *testing.T, members map[string]string) []byte {
	t.Helper()
	var buf bytes.Buffer
	z := gzip.NewWriter(&buf)
	w := tar.NewWriter(z)
	for name, content := range members {
		if err := w.WriteHeader(&tar.Header{Name: name, Mode: 0o755, Size: int64(len(content)), Typeflag: tar.TypeReg}); err != nil {
			t.Fatal(err)
		}
		if _, err := w.Write([]byte(content)); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	if err := z.Close(); err != nil {
		t.Fatal(err)
	}
	return buf.Bytes()
}
