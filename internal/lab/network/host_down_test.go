package network

import (
	"context"
	"net/netip"
	"os"
	"os/exec"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

// TestDownLeavesNothing compares the host before and after, although the daemon did not close its
// sockets.
func TestDownLeavesNothing(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("needs root")
	}
	stateDir := t.TempDir()
	slice, err := Claim(stateDir)
	if err != nil {
		t.Fatal(err)
	}
	before := hostState(t, slice)
	manager, err := Open(t.Context(), slice)
	if err != nil {
		t.Fatal(err)
	}
	defer manager.Close()
	if err := manager.Apply(t.Context(), Config{VPCs: []VPC{threeInterfaces()}}); err != nil {
		t.Fatal(err)
	}
	if _, err := manager.ListenTCP(t.Context(), "vpc-1", "169.254.169.254:80"); err != nil {
		t.Fatal(err)
	}
	if left, err := Leftovers(slice); err != nil || len(left) < 8 {
		t.Errorf("a network in use leaves only this to see: %v %v", left, err)
	}
	if err := Release(stateDir); err == nil {
		t.Error("released a slice in use")
	}
	begin := time.Now()
	if err := Down(context.Background(), slice); err != nil {
		t.Fatal(err)
	}
	t.Logf("down: %s", time.Since(begin))
	if left, err := Leftovers(slice); err != nil || len(left) > 0 {
		t.Errorf("left over: %v %v", left, err)
	}
	if err := Release(stateDir); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(before, hostState(t, slice)); diff != "" {
		t.Errorf("the host is not what it was (-before +after):\n%s", diff)
	}
	if err := Down(t.Context(), slice); err != nil {
		t.Errorf("down where nothing is: %v", err)
	}
}

// hostState describes the host's namespace, without other labs, which may come and go meanwhile.
func hostState(t *testing.T, slice Slice) string {
	t.Helper()
	var b strings.Builder
	for _, command := range []string{
		"ip -o link | cut -d ' ' -f 2-",
		"ip route show table all",
		"ip -6 route show table all",
		"ip rule",
		"nft list ruleset",
		"sysctl -a -r '^net\\.' 2>/dev/null | grep -v nf_conntrack_count",
		"cut -d ' ' -f 5 /proc/self/mountinfo | grep '^" + netnsDir + "/' || true",
	} {
		output, err := exec.CommandContext(t.Context(), "sh", "-c", command).CombinedOutput()
		if err != nil {
			t.Fatalf("%s: %v: %s", command, err, output)
		}
		for line := range strings.Lines(string(output)) {
			if !ofAnotherLab(line, slice) {
				b.WriteString(line)
			}
		}
	}
	return b.String()
}

var addressPattern = regexp.MustCompile(`\d+\.\d+\.\d+\.\d+`)

func ofAnotherLab(line string, own Slice) bool {
	for index := range sliceCount {
		other, err := sliceAt(index)
		if err != nil || index == own.Index {
			continue
		}
		if strings.Contains(line, other.hostLink()) {
			return true
		}
		for _, match := range addressPattern.FindAllString(line, -1) {
			if addr, err := netip.ParseAddr(match); err == nil && other.Prefix.Contains(addr) {
				return true
			}
		}
	}
	return false
}
