package cluster_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/k8s-from-scratch/terraform-provider-k8s/internal/e2e/harness"
)

// testSizes checks that a node reports the size of the example's t3.medium, which has two vCPUs and
// from whose 4 GiB EC2 keeps some, and that its machine says the same.
func (c *cluster) testSizes(t *testing.T) {
	for _, node := range harness.Numbered("worker", 2) {
		capacity := c.Kubectl(t, "get", "node", node, "-o", "jsonpath={.status.capacity.cpu} {.status.capacity.memory}")
		cpu, memory, _ := strings.Cut(capacity, " ")
		vcpus, err := resource.ParseQuantity(cpu)
		if err != nil {
			t.Fatalf("%s has the capacity %q: %v", node, capacity, err)
		}
		bytes, err := resource.ParseQuantity(memory)
		if err != nil {
			t.Fatalf("%s has the capacity %q: %v", node, capacity, err)
		}
		kib := bytes.Value() >> 10
		if vcpus.Value() != 2 || kib > 4<<20 || kib < 3700<<10 {
			t.Errorf("%s has the capacity %q, want that of a t3.medium", node, capacity)
		}
		seen := strings.Fields(c.Sh(t, node, `nproc; getconf _NPROCESSORS_ONLN; free -k | awk '/^Mem/ { print $2 }'`))
		if want := []string{"2", "2", fmt.Sprint(kib)}; strings.Join(seen, " ") != strings.Join(want, " ") {
			t.Errorf("%s sees %v, the kubelet %v", node, seen, want)
		}
	}
}

// testOutOfMemory uses more memory than a node has. The process must be killed, and the node stay.
func (c *cluster) testOutOfMemory(t *testing.T) {
	const boot = "cat /proc/sys/kernel/random/boot_id"
	before := c.Sh(t, "worker-1", boot)
	if out := c.Sh(t, "worker-1", "python3 -c 'bytearray(6 << 30)' > /dev/null 2>&1 || echo status $?"); !strings.Contains(out, "status 137") {
		t.Errorf("a process with 6 GiB on a node with 4 ends with %q, want that it is killed", out)
	}
	if after := c.Sh(t, "worker-1", boot); after != before {
		t.Errorf("the machine's boot was %q, and is %q", before, after)
	}
	harness.Eventually(t, 30*time.Second, "a ready node", func() error {
		out, err := suite.Kubectl(t.Context(), c.Kubeconfig, nil, "get", "node", "worker-1", "-o", `jsonpath={.status.conditions[?(@.type=="Ready")].status}`)
		if err == nil && out != "True" {
			err = fmt.Errorf("worker-1 is ready: %s", out)
		}
		return err
	})
}
