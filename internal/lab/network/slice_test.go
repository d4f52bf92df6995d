package network

import (
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

func testClaims(t *testing.T) claims {
	return claims{filepath.Join(t.TempDir(), "claims"), func(Slice) (bool, error) { return true, nil }}
}

func mustClaim(t *testing.T, c claims, stateDir string) Slice {
	t.Helper()
	s, err := c.claim(stateDir)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func TestClaimIsKeptAndExclusive(t *testing.T) {
	c, root := testClaims(t), t.TempDir()
	first := mustClaim(t, c, filepath.Join(root, "a"))
	second := mustClaim(t, c, filepath.Join(root, "b"))
	if first.Index == second.Index {
		t.Fatalf("two labs have slice %d", first.Index)
	}
	if again := mustClaim(t, c, filepath.Join(root, "a")); again != first {
		t.Errorf("claimed %v again and got %v", first, again)
	}
	if err := c.release(filepath.Join(root, "a")); err != nil {
		t.Fatal(err)
	}
	if third := mustClaim(t, c, filepath.Join(root, "c")); third != first {
		t.Errorf("the released slice %v was not free: got %v", first, third)
	}
}

func TestClaimRunsOut(t *testing.T) {
	c, root := testClaims(t), t.TempDir()
	for n := range sliceCount {
		mustClaim(t, c, filepath.Join(root, string(rune('a'+n))))
	}
	_, err := c.claim(filepath.Join(root, "one-too-many"))
	if err == nil || !strings.Contains(err.Error(), filepath.Join(root, "a")) {
		t.Errorf("got %v, want an error naming who has the slices", err)
	}
}

func TestClaimPassesOverAddressesInUse(t *testing.T) {
	c := testClaims(t)
	c.free = func(s Slice) (bool, error) { return s.Index < 2, nil }
	if s := mustClaim(t, c, t.TempDir()); s.Index != 0 {
		t.Errorf("got slice %d, want the first free one", s.Index)
	}
}

func TestDeletedStateDirectoryFreesItsSlice(t *testing.T) {
	c, root := testClaims(t), t.TempDir()
	gone := filepath.Join(root, "gone")
	first := mustClaim(t, c, gone)
	if err := os.RemoveAll(gone); err != nil {
		t.Fatal(err)
	}
	if s := mustClaim(t, c, filepath.Join(root, "b")); s != first {
		t.Errorf("got %v, want %v back", s, first)
	}
}

func TestClaimAfterReboot(t *testing.T) {
	c, root := testClaims(t), t.TempDir()
	a, b := filepath.Join(root, "a"), filepath.Join(root, "b")
	first := mustClaim(t, c, a)
	if err := os.RemoveAll(c.dir); err != nil { // /run is empty after a reboot
		t.Fatal(err)
	}
	if again := mustClaim(t, c, a); again != first {
		t.Errorf("got %v, want the remembered %v", again, first)
	}
	if err := os.RemoveAll(c.dir); err != nil {
		t.Fatal(err)
	}
	mustClaim(t, c, b)
	if _, err := c.claim(a); err == nil || !strings.Contains(err.Error(), b) {
		t.Errorf("got %v, want an error naming the lab that has the slice now", err)
	}
}

func TestReleaseRefusesWhileInUse(t *testing.T) {
	c, stateDir := testClaims(t), t.TempDir()
	mustClaim(t, c, stateDir)
	c.free = func(Slice) (bool, error) { return false, nil }
	if err := c.release(stateDir); err == nil {
		t.Error("released a slice that is in use")
	}
	c.free = func(Slice) (bool, error) { return true, nil }
	if err := c.release(stateDir); err != nil {
		t.Error(err)
	}
	if _, err := os.Stat(c.dir); !os.IsNotExist(err) {
		t.Error("the last release left the register behind")
	}
	if err := c.release(stateDir); err != nil {
		t.Errorf("releasing nothing: %v", err)
	}
}

func TestClaimAvoidsAddresses(t *testing.T) {
	c, root := testClaims(t), t.TempDir()
	second, err := sliceAt(1)
	if err != nil {
		t.Fatal(err)
	}
	c.free = avoiding([]netip.Addr{second.PublicIPs()[7]}, c.free)
	if s := mustClaim(t, c, filepath.Join(root, "a")); s.Index != 0 {
		t.Errorf("claimed slice %d first", s.Index)
	}
	if s := mustClaim(t, c, filepath.Join(root, "b")); s.Index != 2 {
		t.Errorf("claimed slice %d, which holds an address to avoid, or skipped one too many", s.Index)
	}
}

func TestSlices(t *testing.T) {
	seen := map[netip.Addr]bool{}
	for index := range sliceCount {
		s, err := sliceAt(index)
		if err != nil {
			t.Fatal(err)
		}
		addrs := s.PublicIPs()
		if len(addrs) != 56 {
			t.Errorf("slice %d has %d public addresses", index, len(addrs))
		}
		for _, addr := range slices.Concat(addrs, s.Servers(), []netip.Addr{s.Operator, s.internet()}) {
			if seen[addr] || !s.Prefix.Contains(addr) {
				t.Errorf("slice %d: %s is outside of it, or in another slice too", index, addr)
			}
			seen[addr] = true
		}
	}
	if _, err := sliceAt(sliceCount); err == nil {
		t.Error("a slice too many")
	}
}
