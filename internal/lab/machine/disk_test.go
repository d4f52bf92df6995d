package machine

import (
	"os"
	"path/filepath"
	"testing"
)

func TestFilesOfTheFirstBoot(t *testing.T) {
	d, image := disk(t.TempDir()), t.TempDir()
	in := &instance{disk: d}
	if err := os.Mkdir(filepath.Join(image, "usr"), 0o755); err != nil {
		t.Fatal(err)
	}
	prepare := func(content string) {
		t.Helper()
		if err := (containers{}).prepare(t.Context(), in, Spec{ID: "i-1", Files: map[string]string{"etc/x.d/y": content}}, source{image: Image{Dir: image}}); err != nil {
			t.Fatal(err)
		}
	}
	prepare("first")
	prepare("second")
	if got, err := os.ReadFile(d.path("upper/etc/x.d/y")); string(got) != "first" {
		t.Errorf("the disk has %q, %v", got, err)
	}
}
