package rolls_test

import (
	"strings"
	"testing"
	"time"

	"github.com/k8s-from-scratch/terraform-provider-k8s/internal/e2e/harness"
)

// testNoSandbox rolls out a sandbox image that does not exist. The first node becomes Ready with
// it, but no pod starts there. The roll must stop before a second node is taken down, in the next
// apply as well, and the first apply with the right image must repair it.
func (w *world) testNoSandbox(t *testing.T) {
	harness.Long(t) // package failures has one that never started a pod
	was := suite.Units(t, machines...)
	traffic := w.Traffic(t, w.Kubeconfig)
	args := w.arguments["k8s_worker_pool"]
	args["sandbox_image"] = `"registry.k8s.io/no-such-pause:1"`
	w.write(t)
	for attempt := range 2 {
		began := time.Now()
		_, err := w.WS.Apply(t.Context())
		harness.Refused(t, err, "machine worker-0: start a pod", "FailedCreatePodSandBox", "registry.k8s.io/no-such-pause:1", "it is closed to new pods until one starts there")
		t.Logf("attempt %d refused after %s", attempt, time.Since(began).Round(time.Second))
		if attempt == 0 {
			harness.Refused(t, err, "not touched: worker-1, worker-2. Remove the cause")
		}
		wantRestarted(t, was, "worker-0/containerd")
		if closed := w.Kubectl(t, "get", "nodes", "-o", `jsonpath={.items[?(@.spec.unschedulable==true)].metadata.name}`); closed != "worker-0" {
			t.Errorf("closed to new pods: %q, wanted worker-0", closed)
		}
	}
	delete(args, "sandbox_image")
	w.apply(t)
	traffic.Unbroken(t)
	wantRestarted(t, was, "worker-0/containerd")
	if closed := w.Kubectl(t, "get", "nodes", "-o", `jsonpath={.items[?(@.spec.unschedulable==true)].metadata.name}`); closed != "" {
		t.Errorf("closed to new pods: %q", closed)
	}
	if left := w.Kubectl(t, "get", "pods", "--namespace=kube-system", "--selector=k8s-from-scratch/node-trial", "-o", "name"); strings.TrimSpace(left) != "" {
		t.Errorf("left behind: %s", left)
	}
	w.NoChanges(t)
}
