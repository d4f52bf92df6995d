package deed

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/remote"
)

// TestSealRefuses: a machine that was not made to become an image keeps everything. The script ends before it does anything.
func TestSealRefuses(t *testing.T) {
	here := runnerFunc(func(ctx context.Context, cmd remote.Command) (remote.Output, error) {
		text := cmd.Script
		if first, _, _ := strings.Cut(text, "systemctl"); !strings.Contains(first, "exit 1") {
			t.Fatal("the script does not look whether it may run")
		}
		guard, _, _ := strings.Cut(text, "# What packages") // nothing else runs on this computer
		out, err := exec.CommandContext(ctx, "sh", "-c", guard+"\necho passed\n").CombinedOutput()
		return remote.Output{Stdout: out}, err
	})
	file := filepath.Join(t.TempDir(), "builder")
	if err := Seal(t.Context(), here, file); err == nil {
		t.Error("it was not refused")
	}
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := Seal(t.Context(), here, file); err != nil {
		t.Error(err)
	}
}

// TestCheckPrograms: a program that fails, and a package that is not fully installed, are errors that name them.
func TestCheckPrograms(t *testing.T) {
	audit := ""
	here := runnerFunc(func(ctx context.Context, cmd remote.Command) (remote.Output, error) {
		first, rest, _ := strings.Cut(cmd.Script, "\n")
		sh := exec.CommandContext(ctx, "sh", "-c", first+"\ndpkg() { printf '%s' '"+audit+"'; }\n"+rest)
		var said strings.Builder
		sh.Stderr = &said
		if err := sh.Run(); err != nil {
			return remote.Output{}, &remote.ExitError{Machine: "here", Code: 1, Stderr: said.String()}
		}
		return remote.Output{}, nil
	})
	if err := CheckPrograms(t.Context(), here, []string{"true --version", "echo 1"}); err != nil {
		t.Error(err)
	}
	if err := CheckPrograms(t.Context(), here, []string{"true", "ls /nowhere", "false x"}); err == nil || !strings.Contains(err.Error(), "/nowhere") || !strings.Contains(err.Error(), "false x") {
		t.Errorf("programs that fail: %v", err)
	}
	audit = "haproxy is only half configured"
	if err := CheckPrograms(t.Context(), here, []string{"true"}); err == nil || !strings.Contains(err.Error(), audit) {
		t.Errorf("a package: %v", err)
	}
}

// TestPullImages: the files about registries are there while images are pulled, a pull that fails is tried again, and nothing is
// left.
func TestPullImages(t *testing.T) {
	dir := t.TempDir()
	work := filepath.Join(dir, "run")
	for name, text := range map[string]string{
		"containerd": "#!/bin/sh\nexec sleep 60\n",
		"ctr":        "#!/bin/sh\ncase \"$*\" in *version*) exit 0 ;; esac\ncat \"" + work + "/hosts/docker.io/hosts.toml\" >>" + dir + "/hosts\necho \"$*\" >>" + dir + "/asked\n[ -e " + dir + "/failed ] || { touch " + dir + "/failed; exit 1; }\n",
	} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	here := runnerFunc(func(ctx context.Context, cmd remote.Command) (remote.Output, error) {
		sh := exec.CommandContext(ctx, "sh", "-c", strings.ReplaceAll(cmd.Script, "/run/k8s-from-scratch-pull", work))
		sh.Stdin = cmd.Stdin
		out, err := sh.CombinedOutput()
		if err != nil {
			t.Logf("%s", out)
		}
		return remote.Output{Stdout: out}, err
	})
	hosts := map[string][]byte{"docker.io/hosts.toml": []byte("server\n")}
	if err := PullImages(t.Context(), here, filepath.Join(dir, "containerd"), filepath.Join(dir, "ctr"), hosts, []string{"docker.io/a:1", "docker.io/b:2"}); err != nil {
		t.Fatal(err)
	}
	asked, err := os.ReadFile(filepath.Join(dir, "asked"))
	if err != nil || strings.Count(string(asked), "docker.io/a:1") != 2 || strings.Count(string(asked), "docker.io/b:2") != 1 || !strings.Contains(string(asked), "--namespace k8s.io images pull --hosts-dir "+work+"/hosts") {
		t.Errorf("asked %s: %v", asked, err)
	}
	if text, err := os.ReadFile(filepath.Join(dir, "hosts")); err != nil || string(text) != "server\nserver\nserver\n" {
		t.Errorf("the files: %q, %v", text, err)
	}
	if _, err := os.Stat(work); err == nil {
		t.Error("something is left")
	}
}
