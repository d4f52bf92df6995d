package deed

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/coreos/go-systemd/v22/unit"

	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/remote"
)

// scribe is a Runner that only keeps the last script.
type scribe struct{ script string }

func (s *scribe) Run(_ context.Context, cmd remote.Command) (remote.Output, error) {
	s.script = cmd.Script
	return remote.Output{}, nil
}

// TestScripts checks that every deed has a script, that every script belongs to a deed, says what
// it does, and is valid for a POSIX shell.
func TestScripts(t *testing.T) {
	deeds := []deed{stop, start, restart, restartRunning, kill, noteStop, forgetStop, hold, release, wipe, endPods, askPodsToEnd, rehearse, prepareHostKey, switchHostKey, growRoot,
		snapshot, findSnapshot, makeFromSnapshot, makeFromMember, useRestored, endRestore, setAside, dataVolume, inspectDataVolume, growDataVolume, startDataVolume,
		pullImages, checkPrograms, seal}
	files, err := filepath.Glob("*.sh")
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range files {
		if !slices.Contains(deeds, deed(strings.TrimSuffix(f, ".sh"))) {
			t.Errorf("%s belongs to no deed", f)
		}
	}
	for _, d := range deeds {
		text := d.script()
		if !strings.HasPrefix(text, "set -- \n# ") {
			t.Errorf("%s does not say what it does", d)
		}
		cmd := exec.CommandContext(t.Context(), "sh", "-n")
		cmd.Stdin = strings.NewReader(text)
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Errorf("%s: %v: %s", d, err, out)
		}
	}
}

// TestArguments checks that units and paths reach the script unchanged.
func TestArguments(t *testing.T) {
	for want, do := range map[string]func(Runner) error{
		`set -- 'etcd.service' '/var/lib/etcd/member' '/it'\''s'`: func(r Runner) error {
			return Wipe(t.Context(), r, "etcd.service", "/var/lib/etcd/member", "/it's")
		},
		`set -- 'kubelet.service' '30'`: func(r Runner) error {
			return AskPodsToEnd(t.Context(), r, "kubelet.service", 30*time.Second)
		},
		`set -- 'kube-apiserver.service' 'k8s-hold.service' '1.8'`: func(r Runner) error {
			return Hold(t.Context(), r, "kube-apiserver.service", 1800*time.Millisecond)
		},
		`set -- '10737418240'`:   func(r Runner) error { return GrowRoot(t.Context(), r, 10<<30) },
		`set -- 'ssh-ed25519 A'`: func(r Runner) error { return SwitchHostKey(t.Context(), r, "ssh-ed25519 A") },
	} {
		var s scribe
		if err := do(&s); err != nil || !strings.HasPrefix(s.script, want+"\n") {
			t.Errorf("%v: %.80q, wanted %q first", err, s.script, want)
		}
	}
}

// TestWipe checks that the given paths are deleted, also a second time, and nothing else.
func TestWipe(t *testing.T) {
	dir := t.TempDir()
	local := runnerFunc(func(ctx context.Context, cmd remote.Command) (remote.Output, error) {
		sh := exec.CommandContext(ctx, "sh", "-c", "systemctl() { echo $*; return 5; }\n"+cmd.Script)
		out, err := sh.Output()
		return remote.Output{Stdout: out}, err
	})
	for _, name := range []string{"member/a", "once", "kept"} {
		if out, err := exec.CommandContext(t.Context(), "sh", "-c", `mkdir -p "${1%/*}" && : >"$1"`, "sh", filepath.Join(dir, name)).CombinedOutput(); err != nil {
			t.Fatalf("%v: %s", err, out)
		}
	}
	for range 2 {
		if err := Wipe(t.Context(), local, "none.service", filepath.Join(dir, "member"), filepath.Join(dir, "once")); err != nil {
			t.Fatal(err)
		}
		if left, _ := filepath.Glob(filepath.Join(dir, "*")); len(left) != 1 || filepath.Base(left[0]) != "kept" {
			t.Errorf("left: %q", left)
		}
	}
}

type runnerFunc func(context.Context, remote.Command) (remote.Output, error)

func (f runnerFunc) Run(ctx context.Context, cmd remote.Command) (remote.Output, error) {
	return f(ctx, cmd)
}

// TestRehearsalScript checks that the calls follow the functions.
func TestRehearsalScript(t *testing.T) {
	script, err := rehearsalScript("/run/k8s-rehearsal/x", []Trial{
		{Unit: "a.service", Program: "/bin/a", Options: []*unit.UnitOption{unit.NewUnitOption("Service", "ExecStart", "/bin/a")}},
		{Unit: "b.service", Program: "/tmp/b", Archive: "/var/archive", Member: "bin/b"},
	})
	if err != nil {
		t.Fatal(err)
	}
	text, err := scripts.ReadFile("rehearse.sh")
	if err != nil {
		t.Fatal(err)
	}
	before, calls, _ := strings.Cut(script, string(text))
	if before != "set -- '/run/k8s-rehearsal/x' 'k8s-rehearsal-'\n" {
		t.Errorf("before: %q", before)
	}
	first, second, _ := strings.Cut(calls, "unpack ")
	for _, part := range []struct{ script, begin, end string }{
		{first, "begin\nrehearse 'a.service' '/bin/a' <<'END OF UNIT'\n[Service]\nExecStart=/bin/a\nType=oneshot\n", "\nEND OF UNIT\n"},
		{second, "'/var/archive' 'bin/b' '/tmp/b'\nrehearse 'b.service' '/tmp/b' <<'END OF UNIT'\n[Service]\nType=oneshot\n", "\nEND OF UNIT\nfinish\n"},
	} {
		if !strings.HasPrefix(part.script, part.begin) || !strings.HasSuffix(part.script, part.end) {
			t.Errorf("calls:\n%s\nwanted:\n%s...%s", part.script, part.begin, part.end)
		}
	}
	for _, option := range []string{"PrivateNetwork=yes", "ProtectSystem=strict", "BindReadOnlyPaths=/run/k8s-rehearsal/x/etc:/etc", "StandardOutput=append:/run/k8s-rehearsal/x/a.service.log"} {
		if !strings.Contains(first, "\n"+option+"\n") {
			t.Errorf("not sandboxed by %s:\n%s", option, first)
		}
	}
	if !bytes.HasSuffix(text, []byte("\n")) {
		t.Error("the functions do not end with a line")
	}
}

// TestRehearsedIn reads the report of a rehearsal.
func TestRehearsedIn(t *testing.T) {
	accepted, refused := "kube-scheduler.service 0\nI1 Wrote configuration\n\x00", "kubelet.service 1\nError: no\nit is\n\x00"
	for report, want := range map[string][]Rehearsed{
		"":                          nil,
		"garbage":                   nil,
		"kubelet.service 226\n\x00": {{"kubelet.service", 226, ""}},
		accepted + refused:          {{"kube-scheduler.service", 0, "I1 Wrote configuration\n"}, {"kubelet.service", 1, "Error: no\nit is\n"}},
	} {
		if got := rehearsedIn(report); !slices.Equal(got, want) {
			t.Errorf("%q is read as %v, wanted %v", report, got, want)
		}
	}
}

// TestAgain: ending or releasing something a second time is no error, but a systemd that does not
// do what it is asked is one.
func TestAgain(t *testing.T) {
	const running, stopped, unknown = 0, 3, 4 // what is-active answers
	for _, tt := range []struct {
		name       string
		do         func(context.Context, Runner) error
		stop, kill int // exit statuses of systemctl
		active     int
		failed     bool
		called     string
	}{
		{"kill what runs", killTwo, 0, 0, running, false, "stop --no-block -- a b"},
		{"kill what is stopped", killTwo, 0, 1, stopped, false, "stop --no-block -- a b"},
		{"kill what is not there", killTwo, 5, 1, unknown, false, "kill -s KILL -- a b"},
		{"kill what goes on", killTwo, 0, 1, running, true, "kill -s KILL -- a b"},
		{"kill without an answer of systemd", killTwo, 1, 1, 1, true, "kill -s KILL -- a b"},
		{"release what is held", Release, 0, 0, 0, false, "stop k8s-hold.service"},
		{"release what is not held", Release, 5, 0, 0, false, "stop k8s-hold.service"},
		{"release without an answer of systemd", Release, 1, 0, 0, true, "stop k8s-hold.service"},
	} {
		var calls string
		local := runnerFunc(func(ctx context.Context, cmd remote.Command) (remote.Output, error) {
			sh := exec.CommandContext(ctx, "sh", "-c", fmt.Sprintf(
				"systemctl() { echo \"$*\"; case $1 in stop) return %d ;; kill) return %d ;; is-active) return %d ;; esac; }\n", tt.stop, tt.kill, tt.active)+cmd.Script)
			out, err := sh.Output()
			calls = string(out)
			return remote.Output{}, err
		})
		if err := tt.do(t.Context(), local); (err != nil) != tt.failed {
			t.Errorf("%s: %v", tt.name, err)
		}
		if !strings.Contains(calls, tt.called+"\n") {
			t.Errorf("%s: systemctl was called with\n%swanted %s", tt.name, calls, tt.called)
		}
	}
}

func killTwo(ctx context.Context, r Runner) error { return Kill(ctx, r, "a", "b") }

// TestStopNote checks that the note is replaced as a whole and forgotten, also a second time.
func TestStopNote(t *testing.T) {
	file := filepath.Join(t.TempDir(), "lib", "stopped")
	local := runnerFunc(func(ctx context.Context, cmd remote.Command) (remote.Output, error) {
		out, err := exec.CommandContext(ctx, "sh", "-c", cmd.Script).Output()
		return remote.Output{Stdout: out}, err
	})
	for _, units := range [][]string{{"a.service", "b.service"}, {"c.service"}} {
		if err := noteStop.do(t.Context(), local, append([]string{file}, units...)...); err != nil {
			t.Fatal(err)
		}
		if got, err := os.ReadFile(file); err != nil || string(got) != strings.Join(units, "\n")+"\n" {
			t.Errorf("noted %q, %v", got, err)
		}
	}
	for range 2 {
		if err := forgetStop.do(t.Context(), local, file); err != nil {
			t.Fatal(err)
		}
		if _, err := os.Stat(file); !os.IsNotExist(err) {
			t.Errorf("the note is still there: %v", err)
		}
	}
}
