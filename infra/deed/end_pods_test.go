package deed

import (
	"os"
	"os/exec"
	"path/filepath"
	"testing"
)

// TestEndPods runs the script in namespaces of its own, which have a bridge and the rules of portmap and
// kube-proxy, without systemd and containerd.
func TestEndPods(t *testing.T) {
	if os.Getuid() != 0 {
		t.Skip("needs root: it makes namespaces")
	}
	bin := t.TempDir()
	for _, name := range []string{"systemctl", "ctr"} {
		if err := os.WriteFile(filepath.Join(bin, name), []byte("#!/bin/sh\n"), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	within := func(script string) ([]byte, error) {
		const begin = `[ $$ = 1 ] && mount -t sysfs none /sys && mount -t tmpfs none /run && ip link add cni0 type bridge && nft add table ip other || exit
for family in ip ip6; do nft add table $family cni_hostport && nft add table $family kube-proxy || exit; done
`
		cmd := exec.CommandContext(t.Context(), "unshare", "--net", "--mount", "--pid", "--fork", "--mount-proc", "sh", "-c", begin+script)
		cmd.Env = []string{"PATH=" + bin + ":/usr/sbin:/usr/bin:/sbin:/bin", "END_PODS=" + EndPods("kubelet.service", "kube-proxy.service", "containerd.service")}
		return cmd.CombinedOutput()
	}
	if out, err := within(""); err != nil {
		t.Skipf("no namespaces with a bridge and nftables can be made here: %v\n%s", err, out)
	}
	out, err := within("sh -c \"$END_PODS\" || exit\nnft list tables; ls /sys/class/net")
	if want := "table ip other\nlo\n"; err != nil || string(out) != want {
		t.Errorf("%v, left is %q, wanted %q", err, out, want)
	}
}
