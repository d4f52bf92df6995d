package workspace

import (
	"os"
	"path/filepath"
	"slices"
	"testing"
)

func TestExports(t *testing.T) {
	got := Exports("# comment\nexport A=1\nexport B='x=y'\nC=3\n")
	if want := []string{"A=1", "B=x=y"}; !slices.Equal(got, want) {
		t.Errorf("%q, wanted %q", got, want)
	}
}

func TestSSHKeyIsMadeOnce(t *testing.T) {
	name := filepath.Join(t.TempDir(), "key")
	if err := SSHKey(name); err != nil {
		t.Fatal(err)
	}
	first, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	if err := SSHKey(name); err != nil {
		t.Fatal(err)
	}
	second, err := os.ReadFile(name)
	if err != nil || string(first) != string(second) {
		t.Errorf("the key was made anew (%v)", err)
	}
	if info, err := os.Stat(name); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("mode %v (%v)", info.Mode(), err)
	}
}
