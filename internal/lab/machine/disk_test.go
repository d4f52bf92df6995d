package machine

import (
	"os"
	"testing"
)

func TestFilesOfTheFirstBoot(t *testing.T) {
	d := disk(t.TempDir())
	prepare := func(content string) {
		t.Helper()
		if err := d.prepare(Spec{ID: "i-1", Files: map[string]string{"etc/x.d/y": content}}, Image{Dir: t.TempDir()}); err != nil {
			t.Fatal(err)
		}
	}
	prepare("first")
	prepare("second")
	if got, err := os.ReadFile(d.path("upper/etc/x.d/y")); string(got) != "first" {
		t.Errorf("the disk has %q, %v", got, err)
	}
}
