package workspace

import (
	"os"
	"strings"
	"testing"
)

// TestVersion checks that a build of this tree has one version, however it is installed.
func TestVersion(t *testing.T) {
	for name, want := range map[string]string{
		"../../scripts/lib.sh":  "\nversion=" + Version + "\n",
		"../../.goreleaser.yml": "\n  version_template: \"" + Version + "\"\n",
	} {
		text, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		if !strings.Contains(string(text), want) {
			t.Errorf("%s does not contain %q", name, want)
		}
	}
}
