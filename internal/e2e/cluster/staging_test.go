package cluster_test

import (
	"path"
	"strings"
	"testing"

	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/host"
)

// testDownloads checks that every machine has fetched each of its downloads once, and that the workers,
// whose role waits for all others, had staged theirs before.
func (c *cluster) testDownloads(t *testing.T) {
	var counts map[string]int
	if err := suite.Control(t.Context(), "GET", "/_lab/mirror", nil, &counts); err != nil {
		t.Fatal(err)
	}
	seen := map[string]int{}
	for file, n := range counts {
		name, _, _ := strings.Cut(path.Base(file), "-v")
		seen[name] += n
	}
	for name, want := range map[string]int{
		"etcd": 3, "kube-apiserver": 3, "kube-controller-manager": 3, "kube-scheduler": 3, "kubelet": 2, "kube-proxy": 2, "runc.amd64": 2, "cni-plugins-linux-amd64": 2,
	} {
		if seen[name] != want {
			t.Errorf("%s was served %d times to %d machines", name, seen[name], want)
		}
	}
	for _, worker := range []string{"worker-0", "worker-1"} {
		said := c.Sh(t, worker, "journalctl -o cat -u "+host.StageUnit+" -u "+host.StagePackagesUnit)
		for _, program := range []string{"kubelet", "kube-proxy", "containerd", "runc", "cni-plugins"} {
			if !strings.Contains(said, program+" ") || strings.Count(said, " is there\n") != 5 {
				t.Errorf("%s has not staged %s:\n%s", worker, program, said)
			}
		}
	}
	for machine := range c.Addresses {
		if left := c.Sh(t, machine, "ls -A /var/cache/k8s-from-scratch 2>/dev/null; systemctl list-units --all --no-legend 'k8s-stage*'"); left != "" {
			t.Errorf("left of the staging on %s:\n%s", machine, left)
		}
	}
}
