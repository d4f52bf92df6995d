package host

import (
	"os"
	"path/filepath"
	"slices"
	"testing"
)

// group makes a control group of cgroup v2 with controllers that are not enabled for its children.
func group(t *testing.T) (dir string, available []string) {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("needs root")
	}
	for _, root := range This().groups {
		dir = filepath.Join(root, "k8s-lab-host-test")
		if _, err := words(filepath.Join(root, "cgroup.controllers")); err != nil {
			continue
		}
		_ = os.Remove(dir) // of a test that was killed
		if err := os.Mkdir(dir, 0o755); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() {
			if err := os.Remove(dir); err != nil {
				t.Error(err)
			}
		})
		if available, err := words(filepath.Join(dir, "cgroup.controllers")); err != nil || len(available) > 0 {
			return dir, available
		}
		t.Skip("the host's root group gives its children no controller")
	}
	t.Skip("the host has no cgroup v2")
	return "", nil
}

func TestControllersAreDisabledAgain(t *testing.T) {
	w := newWorld(t, "8192")
	root, available := group(t)
	w.groups = []string{root, filepath.Join(root, "none")}
	are := func(want []string) {
		t.Helper()
		got, err := words(filepath.Join(root, "cgroup.subtree_control"))
		slices.Sort(got)
		slices.Sort(want)
		if err != nil || !slices.Equal(got, want) {
			t.Errorf("enabled are %v (%v), wanted %v", got, err, want)
		}
	}
	a, b := w.lab("a"), w.lab("b")
	w.use(a)
	w.use(b)
	are(available)
	if changes, err := w.Changes(); err != nil || len(changes.Controllers) != len(available) {
		t.Errorf("changes: %+v, %v", changes, err)
	}
	w.release(a)
	are(available)
	w.release(b)
	are(nil)
	if changes, err := w.Changes(); err != nil || len(changes.Controllers) > 0 {
		t.Errorf("after the last lab: %+v, %v", changes, err)
	}
	// What was enabled before stays.
	if err := os.WriteFile(filepath.Join(root, "cgroup.subtree_control"), []byte("+"+available[0]), 0o644); err != nil {
		t.Fatal(err)
	}
	w.use(a)
	w.release(a)
	are(available[:1])
}
