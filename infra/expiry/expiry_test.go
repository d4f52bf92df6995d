package expiry

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

var at = time.Date(2026, 12, 1, 19, 0, 0, 500, time.FixedZone("", 3600))

// TestTimer: the time is in UTC, and a machine that boots after it stays up.
func TestTimer(t *testing.T) {
	t.Parallel()
	state := State(at)
	if err := state.Validate(); err != nil {
		t.Fatal(err)
	}
	text := string(state.Files[1].Content)
	if !strings.Contains(text, "\nOnCalendar=2026-12-01 18:00:00 UTC\n") || strings.Contains(text, "Persistent") {
		t.Error(text)
	}
	if err := Never().Validate(); err != nil {
		t.Fatal(err)
	}
	var gone []string
	for _, r := range Never().Retired {
		gone = append(gone, r.Paths...)
	}
	for _, p := range state.Paths() {
		if !strings.Contains(strings.Join(gone, " "), p) {
			t.Errorf("%s stays", p)
		}
	}
}

// TestBootCommand: the command writes the files of the state, also a second time, and succeeds where it cannot.
func TestBootCommand(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	now := at.Unix() - 1
	run := func() string {
		script := fmt.Sprintf("date() { echo %d; }\n", now) + "systemctl() { echo \"$*\" >>" + dir + "/calls; }\n" + strings.ReplaceAll(BootCommand(at), unitDir, dir+"/units/")
		out, err := exec.CommandContext(t.Context(), "sh", "-c", script).CombinedOutput()
		if err != nil {
			t.Fatalf("%v: %s", err, out)
		}
		return string(out)
	}
	if said := run(); !strings.Contains(said, "units") {
		t.Errorf("without a directory: %q", said)
	}
	if err := os.Mkdir(filepath.Join(dir, "units"), 0o755); err != nil {
		t.Fatal(err)
	}
	run()
	run()
	for _, f := range State(at).Files {
		got, err := os.ReadFile(filepath.Join(dir, "units", filepath.Base(f.Path)))
		if err != nil || string(got) != string(f.Content) {
			t.Errorf("%s: %q, %v", f.Path, got, err)
		}
	}
	calls, _ := os.ReadFile(filepath.Join(dir, "calls"))
	once := "enable k8s-expiry.timer\n--no-block start k8s-expiry.timer\n"
	now++
	run()
	late, _ := os.ReadFile(filepath.Join(dir, "calls"))
	if string(calls) != once+once || string(late) != once+once+once+"--no-block poweroff\n" {
		t.Errorf("%q, after the time %q", calls, late)
	}
}
