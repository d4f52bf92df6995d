package host

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/desired"
)

// TestStageCommand runs the command with a stand-in for systemd-run.
func TestStageCommand(t *testing.T) {
	m, web := newLocalMachine(t), newMirror(t)
	want := appState(t, m, web, "1")
	secret, unknown := want.Binaries[0], want.Binaries[0]
	secret.URL, secret.SHA256 = strings.Replace(web.URL, "http://", "http://user:"+secretWord+"@", 1)+"/app-1", strings.Repeat("1", 64)
	unknown.URL, unknown.SHA256 = web.URL+"/unknown", ""
	want.Binaries = append(want.Binaries, secret, unknown)
	want.Packages = []string{"web"}
	shim := t.TempDir()
	if err := os.WriteFile(filepath.Join(shim, "systemd-run"), []byte("#!/bin/sh\necho \"$*\" >>\"$FAKE_STATE/started\"\n"), 0o755); err != nil {
		t.Fatal(err)
	}
	command, err := m.layout().stageCommand(want, "https_proxy=http://proxy:3128")
	if err != nil || command == "" {
		t.Fatalf("command %q: %v", command, err)
	}
	run := func(path string) string {
		cmd := exec.CommandContext(t.Context(), "sh", "-c", command)
		cmd.Env = []string{"PATH=" + path, "FAKE_STATE=" + m.file("state")}
		out, err := cmd.CombinedOutput()
		if err != nil {
			t.Errorf("the command failed: %v", err)
		}
		return string(out)
	}
	if out := run(shim + ":" + m.path); out != "" {
		t.Errorf("it prints %q", out)
	}
	script := m.read("run/stage.sh")
	if strings.Contains(script, secretWord) || strings.Contains(script, "/unknown") || !strings.Contains(script, web.URL+"/app-1") {
		t.Error("the script has more or less than it may")
	}
	if out, err := exec.CommandContext(t.Context(), "sh", "-n", m.file("run/stage.sh")).CombinedOutput(); err != nil {
		t.Errorf("%v: %s", err, out)
	}
	started := m.read("state/started")
	for _, unit := range []string{
		"--unit=" + StageUnit + " -p DefaultDependencies=no -p EnvironmentFile=-/etc/environment -E https_proxy=http://proxy:3128 -p Nice=10 ",
		"--unit=" + StagePackagesUnit + " -p DefaultDependencies=no -p After=cloud-final.service -p EnvironmentFile=-/etc/environment -E https_proxy=http://proxy:3128 -p Nice=10 ",
	} {
		if !strings.Contains(started, unit) {
			t.Errorf("%s is not in\n%s", unit, started)
		}
	}
	few := t.TempDir()
	for _, tool := range []string{"sh", "mkdir", "base64", "gzip"} {
		at, err := exec.LookPath(tool)
		if err == nil {
			err = os.Symlink(at, filepath.Join(few, tool))
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	// Without systemd-run the boot goes on all the same.
	if out := run(few); !strings.Contains(out, "systemd-run") || m.read("state/started") != started {
		t.Errorf("it prints %q and starts\n%s", out, m.read("state/started"))
	}
	if empty, err := m.layout().stageCommand(desired.State{Binaries: []desired.Binary{secret, unknown}}); empty != "" || err != nil {
		t.Errorf("a command for nothing: %q, %v", empty, err)
	}
	if _, err := StageCommand(desired.State{Packages: []string{"-o Evil=1"}}); err == nil {
		t.Error("an option was taken for the name of a package")
	}
	// User data are limited to 16 KiB, and hold keys, too.
	for n := range 8 {
		want.Binaries = append(want.Binaries, desired.Binary{Name: "kube-controller-manager", Version: "1.36.4", SHA256: desired.Sum([]byte(fmt.Sprint(n))),
			URL: fmt.Sprintf("https://mirror.example.com/dl.k8s.io/release/v1.36.4/bin/linux/amd64/program-%d", n)})
	}
	if command, _ = StageCommand(want); len(command) > 9<<10 {
		t.Errorf("the command has %d bytes", len(command))
	}
	t.Logf("%d bytes", len(command))
}
