package host

import (
	"net/netip"
	"os"
	"testing"
)

// TestNames: a lab's names come and go, and everything else in the file stays as it is.
func TestNames(t *testing.T) {
	w := newWorld(t, "8192")
	own := "127.0.0.1 localhost\n# no newline at the end"
	if err := os.WriteFile(w.hosts, []byte(own), 0o644); err != nil {
		t.Fatal(err)
	}
	is := func(want string) {
		t.Helper()
		if got, err := os.ReadFile(w.hosts); err != nil || string(got) != want {
			t.Errorf("%v, %q, wanted %q", err, got, want)
		}
	}
	names := func(lab string, names map[string][]netip.Addr) {
		t.Helper()
		if err := w.Names(t.Context(), lab, names); err != nil {
			t.Fatal(err)
		}
	}
	a, b := w.lab("a"), w.lab("b")
	names(a, nil)
	is(own)
	one, two := netip.MustParseAddr("203.0.113.1"), netip.MustParseAddr("203.0.113.2")
	names(a, map[string][]netip.Addr{"api.example": {one, two}})
	first := own + "\n203.0.113.1 api.example # k8s-lab " + a + "\n203.0.113.2 api.example # k8s-lab " + a + "\n"
	is(first)
	names(b, map[string][]netip.Addr{"other.example": {two}})
	is(first + "203.0.113.2 other.example # k8s-lab " + b + "\n")
	names(a, map[string][]netip.Addr{"api.example": {two}})
	is(own + "\n203.0.113.2 other.example # k8s-lab " + b + "\n203.0.113.2 api.example # k8s-lab " + a + "\n")
	if err := os.RemoveAll(b); err != nil { // it was not taken down
		t.Fatal(err)
	}
	w.release(a)
	is(own + "\n")
}
