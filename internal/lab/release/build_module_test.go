package release

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/mod/modfile"

	"github.com/k8s-from-scratch/terraform-provider-k8s/internal/progress"
)

func TestWrapperModule(t *testing.T) {
	const upstream = `module example.test/x/v2

go 1.24.0

toolchain go1.99.1

godebug default=go1.24

require (
	example.test/a v1.0.0
	example.test/b v0.0.0 // indirect
	example.test/c v1.1.0
	example.test/moved v1.5.0
)

exclude example.test/a v1.0.1

replace (
	example.test/a => ./a
	example.test/b => ./staging/b
	example.test/c v1.1.0 => example.test/fork v1.1.1
	example.test/never => ./FORBIDDEN
	example.test/moved => example.test/elsewhere v1.5.0
)

tool (
	example.test/tool/one
	example.test/tool/two
)
`
	got, err := wrapperModule([]byte(upstream), module{path: "example.test/x/v2", version: "v2.3.4", staging: "v0.9.0"})
	must(t, err)
	f, err := modfile.Parse("go.mod", got, nil)
	must(t, err)

	requires := make(map[string]string)
	for _, r := range f.Require {
		requires[r.Mod.Path] = r.Mod.Version
	}
	for path, want := range map[string]string{
		"example.test/x/v2": "v2.3.4", "example.test/a": "v1.0.0", "example.test/b": "v0.0.0", "example.test/c": "v1.1.0",
		"example.test/moved": "v1.5.0",
	} {
		if requires[path] != want {
			t.Errorf("requires %s %q, want %q", path, requires[path], want)
		}
	}
	replaces := make(map[string]string)
	for _, r := range f.Replace {
		replaces[r.Old.String()] = r.New.String()
	}
	if len(replaces) != 2 || replaces["example.test/b"] != "example.test/b@v0.9.0" || replaces["example.test/c@v1.1.0"] != "example.test/fork@v1.1.1" {
		t.Errorf("replaces %v: want b by its staging version, c by upstream's fork and no other", replaces)
	}
	if f.Toolchain != nil || len(f.Tool) != 0 {
		t.Error("toolchain or tools are repeated")
	}
	if f.Go.Version != "1.24.0" || len(f.Godebug) != 1 || len(f.Exclude) != 1 || f.Module.Mod.Path == "example.test/x/v2" {
		t.Errorf("go.mod lost something:\n%s", got)
	}
	if _, err := wrapperModule([]byte("modul x\n"), module{path: "x"}); err == nil {
		t.Error("a malformed go.mod is accepted")
	}
}

func TestExecutableName(t *testing.T) {
	for pkg, want := range map[string]string{
		"go.etcd.io/etcd/server/v3":             "server",
		"github.com/opencontainers/runc":        "runc",
		"k8s.io/kubernetes/cmd/kubelet":         "kubelet",
		"example.test/a/cmd/shim-runc-v2":       "shim-runc-v2",
		"github.com/containerd/containerd/v2/x": "x",
	} {
		if got := executableName(pkg); got != want {
			t.Errorf("executableName(%s) = %s, want %s", pkg, got, want)
		}
	}
}

func newBuilder(t *testing.T) (*builder, *recorder) {
	t.Helper()
	l := new(recorder)
	return &builder{work: t.TempDir(), progress: progress.To(l.print)}, l
}

func TestBuildModule(t *testing.T) {
	newModuleProxy(t).addHello("v1.0.0")
	b, l := newBuilder(t)
	out := t.TempDir()
	released, err := b.build(t.Context(), helloProduct("v1.0.0"), out)
	must(t, err)
	if want := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC); !released.Equal(want) {
		t.Errorf("released %v, want %v", released, want)
	}
	got, err := exec.CommandContext(t.Context(), filepath.Join(out, "hello")).Output()
	must(t, err)
	if want := "lib v0.5.0 c0ffee 2026-01-02T03:04:05Z\n"; string(got) != want {
		t.Errorf("program prints %q, want %q", got, want)
	}
	if l.count("building hello v1.0.0 from Go modules: done") != 1 {
		t.Errorf("progress: %q", l.lines)
	}
	if left, _ := os.ReadDir(b.work); len(left) != 0 {
		t.Errorf("left behind: %v", left)
	}
}

func TestBuildFailureTellsWhy(t *testing.T) {
	proxy := newModuleProxy(t)
	proxy.add("example.test/hello", "v1.0.0", map[string]string{
		"go.mod":     "module example.test/hello\n\ngo 1.24\n",
		"v3/main.go": "package main\n\nfunc main() { undefinedThing() }\n",
	})
	b, _ := newBuilder(t)
	_, err := b.build(t.Context(), helloProduct("v1.0.0"), t.TempDir())
	if err == nil || !strings.Contains(err.Error(), "undefinedThing") || !strings.Contains(err.Error(), "hello v1.0.0") {
		t.Errorf("error does not name the product and the compiler's complaint: %v", err)
	}
	_, err = b.build(t.Context(), helloProduct("v1.0.1"), t.TempDir())
	if err == nil || !strings.Contains(err.Error(), "example.test/hello@v1.0.1") {
		t.Errorf("error does not name the missing module: %v", err)
	}
}

func TestBuildEndsWithContext(t *testing.T) {
	b, _ := newBuilder(t)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	// The pipe is open until the shell's child has ended, too.
	reader, writer, err := os.Pipe()
	must(t, err)
	defer reader.Close()
	cmd := b.command(ctx, b.work, "sh", "-c", "sleep 100 & echo >&3; wait")
	cmd.ExtraFiles = []*os.File{writer}
	go func() {
		_, _ = reader.Read(make([]byte, 1))
		cancel()
	}()
	if err := run(cmd, nil); err == nil {
		t.Error("no error from a program that was ended")
	}
	must(t, writer.Close())
	must(t, reader.SetReadDeadline(time.Now().Add(time.Minute)))
	if _, err := reader.Read(make([]byte, 1)); !errors.Is(err, io.EOF) {
		t.Errorf("a child was not ended: %v", err)
	}
}

func TestPauseReapsAndEnds(t *testing.T) {
	b, _ := newBuilder(t)
	out := t.TempDir()
	_, err := b.build(t.Context(), pauseProduct(), out)
	must(t, err)
	version, err := exec.CommandContext(t.Context(), filepath.Join(out, "pause"), "-v").Output()
	must(t, err)
	if string(version) != "pause "+PauseVersion+"\n" {
		t.Errorf("version is %q", version)
	}
	// A Go program that is started with the signal ignored catches it once it asks for it.
	cmd := exec.CommandContext(t.Context(), "sh", "-c", `trap "" INT; exec "$0"`, filepath.Join(out, "pause"))
	must(t, cmd.Start())
	done := make(chan error, 1)
	go func() { done <- cmd.Wait() }()
	for deadline := time.After(time.Minute); !catchesInterrupt(cmd.Process.Pid); {
		select {
		case err := <-done:
			t.Fatalf("pause ended by itself: %v", err)
		case <-deadline:
			t.Fatal("pause does not listen")
		case <-time.After(10 * time.Millisecond):
		}
	}
	must(t, cmd.Process.Signal(os.Interrupt))
	select {
	case err := <-done:
		must(t, err)
	case <-time.After(time.Minute):
		_ = cmd.Process.Kill()
		t.Fatal("pause does not end when told to")
	}
}

func catchesInterrupt(pid int) bool {
	status, _ := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	_, caught, _ := strings.Cut(string(status), "SigCgt:")
	var signals uint64
	_, _ = fmt.Sscanf(caught, "%x", &signals)
	return signals&(1<<(syscall.SIGINT-1)) != 0
}
