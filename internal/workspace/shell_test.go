package workspace

import (
	"os"
	"os/exec"
	"path/filepath"
	"testing"
)

// A shell that reads the file has the environment, and terraform runs in the workspace.
func TestShellFile(t *testing.T) {
	dir := t.TempDir()
	cli := filepath.Join(dir, "it's a cli")
	if err := os.WriteFile(cli, []byte("#!/bin/sh\necho \"$A|$K|$TF_INPUT|$1|$2\"\n"), 0o755); err != nil {
		t.Fatal(err)
	}
	w := &Workspace{Dir: "/some where", CLI: cli, Env: []string{"A=it's $HOME", "TF_INPUT=0", "PATH=/nowhere"}}
	file := filepath.Join(dir, "env")
	if err := os.WriteFile(file, []byte(w.ShellFile([]string{"/first", "/second"}, map[string]string{"K": "x=y"})), 0o600); err != nil {
		t.Fatal(err)
	}
	out, err := exec.CommandContext(t.Context(), "sh", "-c", `PATH=/bin:/usr/bin; . "$0"; echo "$PATH"; terraform plan`, file).CombinedOutput()
	want := "/first:/second:/bin:/usr/bin\nit's $HOME|x=y||-chdir=/some where|plan\n"
	if err != nil || string(out) != want {
		t.Errorf("%v\n%q, want\n%q", err, out, want)
	}
}
