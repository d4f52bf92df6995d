package sources

import (
	"os"
	"path/filepath"
	"testing"
)

func TestAptMirror(t *testing.T) {
	for name, tc := range map[string]struct{ file, text, want string }{
		"deb822":    {"sources.list.d/debian.sources", "Types: deb\nURIs: http://example.test/debian/\nSuites: bookworm\n", "http://example.test/debian"},
		"one line":  {"sources.list", "# deb http://no.test/debian x\ndeb [arch=amd64] https://example.test/mirror/debian bookworm main\n", "https://example.test/mirror/debian"},
		"security":  {"sources.list", "deb http://example.test/debian-security bookworm-security main\n", ""},
		"ubuntu":    {"sources.list.d/u.list", "deb http://example.test/ubuntu noble main\n", ""},
		"no source": {"sources.list", "", ""},
	} {
		dir := t.TempDir()
		file := filepath.Join(dir, tc.file)
		if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(file, []byte(tc.text), 0o644); err != nil {
			t.Fatal(err)
		}
		if got := aptMirror(dir); got != tc.want {
			t.Errorf("%s: %s, want %s", name, got, tc.want)
		}
	}
	if got := aptMirror("/nonexistent"); got != "" {
		t.Errorf("without sources: %q", got)
	}
}
