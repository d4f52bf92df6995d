package fleet

import (
	"fmt"
	"net/netip"
	"strings"
	"testing"

	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/component"
	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/remote"
)

// machines reads "name address key" or "name address key id". An address is the machine's private
// address, or the private address and another one for SSH.
func machines(t *testing.T, lines ...string) []Target {
	t.Helper()
	var out []Target
	for _, line := range lines {
		f := append(strings.Fields(line), "")
		private, ssh, other := strings.Cut(f[1], "/")
		if !other {
			ssh = private
		}
		out = append(out, Target{Node: component.Node{Name: f[0], PrivateIP: netip.MustParseAddr("192.168.1." + private), InstanceID: f[3]},
			Host: remote.Host{Name: f[0], Address: "192.168.1." + ssh, HostKeys: []string{"ssh-ed25519 " + f[2] + " root@" + f[0]}}})
	}
	return out
}

// TestIdentity: machines that leave are identified by their names, or by their addresses and keys
// if other machines get their names. Machines that would get other names are found.
func TestIdentity(t *testing.T) {
	three := []string{"a 10 A", "b 11 B", "c 12 C"}
	for _, tt := range []struct {
		name        string
		prior, want []string
		leaving     string
		superseded  string
		renamed     string
	}{
		{"nothing changes", three, three, "", "", ""},
		{"the last leaves", three, three[:2], "c", "", ""},
		{"the first leaves, and positions are names", three, []string{"a 11 B", "b 12 C"}, "c", "a at 192.168.1.10", "b to a, c to b"},
		{"two names are exchanged", three[:2], []string{"a 11 B", "b 10 A"}, "", "", "b to a, a to b"},
		{"two addresses are exchanged", three[:2], []string{"a 11 A", "b 10 B"}, "", "", ""},
		{"one is renamed", three, []string{"a 10 A", "b 11 B", "d 12 C"}, "c", "", "c to d"},
		{"another machine takes a name", three, []string{"a 20 X", "b 11 B", "c 12 C"}, "", "a at 192.168.1.10", ""},
		{"it gets another address", three[:1], []string{"a 20 A"}, "", "", ""},
		{"it is installed again", three[:1], []string{"a 10 X"}, "", "", ""},
		{"another machine at the address of one that leaves", three, []string{"a 10 A", "b 11 B", "d 12 X"}, "c", "", ""},
		{"an instance is replaced", []string{"a 10 A i-1", "b 11 B i-2"}, []string{"a 20 X i-3", "b 11 B i-2"}, "", "", ""},
		{"an instance is replaced, and addresses are used again", []string{"a 10 A i-1", "b 11 B i-2"}, []string{"a 11 X i-3", "b 10 Y i-4"}, "", "", ""},
		{"an instance is given another name", []string{"a 10 A i-1"}, []string{"b 10 A i-1"}, "a", "", "a to b"},
		{"copies with one key", []string{"a 10 A", "b 11 A"}, []string{"a 10 A", "b 11 A", "c 12 A"}, "", "", ""},
		{"a copy leaves", []string{"a 10 A", "b 11 A"}, []string{"a 10 A"}, "b", "", ""},
		{"another copy takes a name", []string{"a 10 A", "b 11 A"}, []string{"a 20 A", "b 11 A"}, "", "a at 192.168.1.10", ""},
		{"its key and its SSH address change", []string{"a 10/30 A"}, []string{"a 10/40 X"}, "", "", ""},
		{"the first of two copies leaves", []string{"a 10 A", "b 11 A"}, []string{"a 11 A"}, "b", "a at 192.168.1.10", "b to a"},
	} {
		prior, want := machines(t, tt.prior...), machines(t, tt.want...)
		var leaving, superseded, renamed []string
		for _, l := range Leaving(want, prior) {
			leaving = append(leaving, l.Name())
		}
		for _, l := range Superseded(want, prior) {
			superseded = append(superseded, l.Former().Name())
		}
		for _, r := range Renamed(want, prior) {
			renamed = append(renamed, fmt.Sprintf("%s to %s", r.From.Name(), r.To.Name()))
		}
		for what, got := range map[string][2]string{"leaving": {strings.Join(leaving, ", "), tt.leaving}, "superseded": {strings.Join(superseded, ", "), tt.superseded},
			"renamed": {strings.Join(renamed, ", "), tt.renamed}} {
			if got[0] != got[1] {
				t.Errorf("%s: %s: %q, wanted %q", tt.name, what, got[0], got[1])
			}
		}
	}
}
