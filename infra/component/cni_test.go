package component

import (
	"os"
	"os/exec"
	"testing"

	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/desired"
)

// TestRetiredBridge runs the cleanup in a network namespace that has the bridge and portmap's rules, and in one
// that never had them.
func TestRetiredBridge(t *testing.T) {
	if os.Getuid() != 0 {
		t.Skip("needs root: it makes a network namespace")
	}
	var bridge desired.Retired
	spec := workerSpec(t)
	spec.CNI.Network = CNINone
	for _, r := range must(t)(Workers(spec)(worker0)).State.Retired {
		if r.Unit == PodEgressUnit {
			bridge = r
		}
	}
	within := func(script string) ([]byte, error) {
		cmd := exec.CommandContext(t.Context(), "unshare", "--net", "--mount", "sh", "-c", "mount -t sysfs none /sys && nft add table ip other\n"+script)
		cmd.Env = []string{"PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin", "CLEANUP=" + bridge.Cleanup}
		return cmd.CombinedOutput()
	}
	const (
		has   = "ip link add cni0 type bridge && nft add table ip cni_hostport && nft add table ip6 cni_hostport\n"
		clean = "sh -c \"$CLEANUP\" || exit\n"
		left  = "nft list tables; ls /sys/class/net"
	)
	if out, err := within(has); err != nil {
		t.Skipf("no network namespace with a bridge and nftables can be made here: %v\n%s", err, out)
	}
	for _, script := range []string{has + clean + clean + left, clean + left} {
		out, err := within(script)
		if want := "table ip other\nlo\n"; err != nil || string(out) != want {
			t.Errorf("%v, left is %q, wanted %q", err, out, want)
		}
	}
}
