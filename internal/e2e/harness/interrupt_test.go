package harness

import (
	"bufio"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
)

// TestEndWhenInterrupted interrupts a process with a suite of two labs, after the reader of its output
// has ended.
func TestEndWhenInterrupted(t *testing.T) {
	const child = "K8S_E2E_INTERRUPTED"
	if dir := os.Getenv(child); dir != "" {
		(&Suite{Dir: dir, Bin: os.Getenv(child + "_BIN")}).endWhenInterrupted(func() {})()
		fmt.Println("ready")
		select {}
	}
	dir, bin := t.TempDir(), t.TempDir()
	for _, lab := range []string{"lab", "eu-central-1/lab"} {
		if err := os.MkdirAll(filepath.Join(dir, lab), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.WriteFile(filepath.Join(bin, "k8s-lab"), []byte("#!/bin/sh\necho \"$@\" >>\"$0.calls\"\n"), 0o755); err != nil {
		t.Fatal(err)
	}
	nobody, stderr, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	_ = nobody.Close()
	defer func() { _ = stderr.Close() }()
	cmd := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^TestEndWhenInterrupted$")
	cmd.Env = append(os.Environ(), child+"="+dir, child+"_BIN="+bin, "K8S_E2E_KEEP=")
	cmd.Stderr = stderr
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	if line, err := bufio.NewReader(out).ReadString('\n'); line != "ready\n" {
		t.Fatalf("%q, %v", line, err)
	}
	if err := cmd.Process.Signal(os.Interrupt); err != nil {
		t.Fatal(err)
	}
	var exit *exec.ExitError
	if err := cmd.Wait(); !errors.As(err, &exit) || exit.ExitCode() != 1 {
		t.Errorf("the process ended with %v", err)
	}
	calls, err := os.ReadFile(filepath.Join(bin, "k8s-lab.calls"))
	want := fmt.Sprintf("--state-dir %s/eu-central-1/lab down\n--state-dir %s/lab down\n", dir, dir)
	if err != nil || string(calls) != want {
		t.Errorf("k8s-lab was called with\n%s%v, want\n%s", calls, err, want)
	}
	if _, err := os.Stat(dir); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("the suite's directory: %v", err)
	}
}
