package host

import (
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/desired"
)

// TestExclusive removes from an exclusive directory what is not wanted, with the directories that are then empty, and nothing else.
func TestExclusive(t *testing.T) {
	m := newLocalMachine(t)
	file := func(name string) desired.File {
		return desired.File{Path: m.file("etc/hosts/" + name), Mode: 0o600, Content: []byte(name), Secret: true}
	}
	dir := desired.Directory{Path: m.file("etc/hosts"), Mode: 0o755, Exclusive: true}
	before := desired.State{Directories: []desired.Directory{dir}, Files: []desired.File{file("a/x"), file("a/y"), file("b/x")}}
	after := desired.State{Directories: []desired.Directory{dir}, Files: []desired.File{file("a/x")}}
	rec := m.converge(before, Record{})

	for _, d := range []string{"c/d e", "a/x.displaced.1", "empty/deep"} {
		if err := os.MkdirAll(m.file("etc/hosts/"+d), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Symlink(m.file("etc"), m.file("etc/hosts/link")); err != nil {
		t.Fatal(err)
	}
	m.write("etc/hosts/c/d e/x", "by hand")
	m.write("etc/hosts/.hidden", "by hand")
	m.write("etc/other", "of others")
	m.write("etc/hosts/a/x.displaced.1/x", "moved aside")
	var found []string
	for _, c := range m.diff(after, rec) {
		rel, _ := filepath.Rel(m.file("etc/hosts"), c.Target)
		found = append(found, rel+": "+string(c.Problem))
	}
	want := []string{".hidden: not wanted", "a/y: not wanted", "b/x: not wanted", "c/d e/x: not wanted", "empty/deep: not wanted", "link: not wanted"}
	if !slices.Equal(found, want) {
		t.Errorf("found %q, wanted %q", found, want)
	}
	m.converge(after, rec)
	var left []string
	if err := filepath.WalkDir(m.file("etc"), func(p string, d os.DirEntry, err error) error {
		rel, _ := filepath.Rel(m.file("etc"), p)
		left = append(left, rel)
		return err
	}); err != nil {
		t.Fatal(err)
	}
	if want := []string{".", "hosts", "hosts/a", "hosts/a/x", "hosts/a/x.displaced.1", "hosts/a/x.displaced.1/x", "other"}; !slices.Equal(left, want) {
		t.Errorf("left are %q, wanted %q", left, want)
	}
}
