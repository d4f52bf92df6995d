package provider

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestTimings checks where the values of the variable write, that processes append, and that nobody
// else may read the file.
func TestTimings(t *testing.T) {
	t.Chdir(t.TempDir())
	elsewhere := filepath.Join(t.TempDir(), "elsewhere")
	for value, file := range map[string]string{"": "", "0": "", "1": timingsFile, elsewhere: elsewhere} {
		for range 2 {
			taken := startTimings(func(string) string { return value })
			if err := taken.write("1.2.3"); err != nil {
				t.Fatal(err)
			}
		}
		if file == "" {
			if found, _ := os.ReadDir("."); len(found) > 0 && found[0].Name() != timingsFile {
				t.Errorf("%q wrote %v", value, found)
			}
			continue
		}
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		if n := strings.Count(string(text), " provider 1.2.3, process "); n != 2 || !strings.Contains(string(text), "initialization") {
			t.Errorf("%q wrote %d tables:\n%s", value, n, text)
		}
		if info, err := os.Stat(file); err != nil || info.Mode().Perm() != 0o600 {
			t.Errorf("%q: mode %v (%v)", value, info.Mode(), err)
		}
	}
	if err := startTimings(func(string) string { return "/no/such/directory/file" }).write("1"); err == nil || !strings.HasPrefix(err.Error(), timingsVariable) {
		t.Errorf("a file that cannot be written: %v", err)
	}
}
