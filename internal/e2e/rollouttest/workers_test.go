package rollouttest

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/yaml"

	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/aws"
	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/component"
	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/finding"
	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/kube"
	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/registry"
	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/rollout"
	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/rollout/addon"
	"github.com/k8s-from-scratch/terraform-provider-k8s/internal/e2e/harness"
)

// TestWorkers covers workers, their nodes and their pods. One controller is enough.
func TestWorkers(t *testing.T) {
	w := newWorld(t, preparedImage)
	targets := w.launchAll(balancer, controller0, worker0, worker1)
	d := w.deploy(targets[0], targets[1:2], targets[2:4])
	d.workers.Spec.Kubelet.Labels = map[string]string{"pool": "blue", "node-role.kubernetes.io/worker": ""}
	d.firstApply()
	w.stage("coredns", func() error { return d.applyAddon(d.t.Context(), d.dns, nil) })
	s, err := d.status()
	if err != nil {
		t.Error(err)
	}
	for i, n := range s.Nodes {
		want := d.workers.Targets[i].Node
		if !n.Ready || n.InternalIP != want.PrivateIP.String() || n.PodCIDR != want.PodCIDR.String() || n.Version != "v"+kubernetesVersion {
			t.Errorf("node %+v, wanted %+v", n, want)
		}
	}
	if all {
		t.Run("addon", func(t *testing.T) { d.on(t).testAddon() })
		t.Run("damage", func(t *testing.T) { d.on(t).testWorkerDamage() })
	}
	t.Run("kubelet setting", func(t *testing.T) { d.on(t).testKubeletSetting() })
	if all {
		t.Run("runtime setting", func(t *testing.T) { d.on(t).testRuntimeSetting() })
	}
	t.Run("scale", func(t *testing.T) { d.on(t).testScaleWorkers() })
	t.Run("claims", func(t *testing.T) { d.on(t).testClaims() })
	t.Run("removal", func(t *testing.T) { d.on(t).testWorkerRemoval() })
}

func (d *deployment) observeAddon() map[string]string {
	d.t.Helper()
	seen, err := d.dns.Observe(d.t.Context(), d.fleet, d.dnsInventory)
	d.must(err)
	if len(seen.Unjudged) > 0 {
		d.t.Errorf("not judged: %q", seen.Unjudged)
	}
	return finding.BySubject(seen.Drift)
}

// applyAddon applies an addon and keeps its inventory.
func (d *deployment) applyAddon(ctx context.Context, a addon.Addon, inventory []kube.ObjectRef) error {
	applied, err := a.Apply(ctx, d.fleet, inventory)
	d.dnsInventory = applied.Inventory
	return err
}

func (d *deployment) testAddon() {
	ctx := d.t.Context()
	if drift := d.observeAddon(); len(drift) > 0 {
		d.t.Errorf("drift right after: %q", drift)
	}
	client := d.api().Typed()
	_, err := client.CoreV1().ConfigMaps("kube-system").Patch(ctx, "coredns", types.MergePatchType, []byte(`{"data":{"Corefile":"broken"}}`), metav1.PatchOptions{})
	d.must(err)
	d.must(client.CoreV1().ServiceAccounts("kube-system").Delete(ctx, "coredns", metav1.DeleteOptions{}))
	drift := d.observeAddon()
	if len(drift) != 2 || !strings.HasPrefix(drift["ConfigMap kube-system/coredns"], "data.Corefile: found \"broken\"") || drift["ServiceAccount kube-system/coredns"] != "missing" {
		d.t.Errorf("drift = %q", drift)
	}
	var extra []*unstructured.Unstructured
	extra = append(extra, configMap(kube.ObjectRef{APIVersion: "v1", Kind: "ConfigMap", Namespace: "kube-system", Name: "extra"})...)
	with := d.dns
	with.Objects = append(slices.Clone(d.dns.Objects), extra...)
	d.must(d.applyAddon(ctx, with, d.dnsInventory))
	if drift := d.observeAddon(); len(drift) != 1 || !strings.Contains(drift["ConfigMap kube-system/extra"], "not wanted") {
		d.t.Errorf("drift with a superfluous object = %q", drift)
	}
	d.must(d.applyAddon(ctx, d.dns, d.dnsInventory))
	if drift := d.observeAddon(); len(drift) > 0 {
		d.t.Errorf("drift after the repair: %q", drift)
	}
}

func (d *deployment) testWorkerDamage() {
	before := d.starts()
	d.shell(d.workers.Targets[0], "cp /usr/local/bin/kube-proxy /tmp/p && echo x >> /tmp/p && mv /tmp/p /usr/local/bin/kube-proxy")
	d.shell(d.workers.Targets[1], "systemctl stop kubelet && chmod 644 /etc/kubernetes/kubelet.kubeconfig")
	_, err := d.api().Typed().CoreV1().Nodes().Patch(d.t.Context(), "worker-0", types.MergePatchType, []byte(`{"metadata":{"labels":{"pool":"red"}}}`), metav1.PatchOptions{})
	d.must(err)
	d.must(d.api().DeleteNode(d.t.Context(), "worker-1"))
	d.expectDrift(
		"workers worker-0: binary /usr/local/bin/kube-proxy: content differs",
		"workers worker-1: file /etc/kubernetes/kubelet.kubeconfig: mode 0644, wanted 0600\nunit kubelet.service: stopped, wanted running",
	)
	drift := strings.Join(d.drift(), "\n")
	for _, words := range []string{`node label pool: found "red", wanted "blue"`, "worker-1: file", "node: not registered"} {
		if !strings.Contains(drift, words) {
			d.t.Errorf("%q is not in\n%s", words, drift)
		}
	}
	d.repair(before, "worker-0/kube-proxy", "worker-1/kubelet")

	before = d.starts()
	d.must(d.api().DeleteNode(d.t.Context(), "worker-0"))
	d.expectDrift("workers worker-0: node: not registered with the API server")
	d.repair(before, "worker-0/kubelet")

	before = d.starts()
	prior := *d
	d.workers.Spec.Kubelet.Args = component.SingleArgs(map[string]string{"no-such-flag": "1"})
	if err := d.apply(d.t.Context(), &prior); err == nil || !strings.Contains(err.Error(), "no-such-flag") || !strings.Contains(err.Error(), "kubelet") {
		d.t.Errorf("a wrong flag: %v", err)
	}
	d.workers.Spec.Kubelet.Args = nil
	d.repair(before)
}

// pods returns the running pods of harness.Web, by name, with their nodes.
func (d *deployment) pods() map[string]string {
	d.t.Helper()
	list, err := d.api().Typed().CoreV1().Pods("default").List(d.t.Context(), metav1.ListOptions{LabelSelector: "app=web"})
	d.must(err)
	out := map[string]string{}
	for _, p := range list.Items {
		if p.DeletionTimestamp == nil && p.Status.Phase == corev1.PodRunning {
			out[p.Name] = p.Spec.NodeName
		}
	}
	return out
}

// pinned are fields of a kubelet with which it keeps in files which processors and which memory pods have. It
// does not start with the files of other policies.
var pinned = map[string]any{
	"cpuManagerPolicy": "static", "memoryManagerPolicy": "Static", "topologyManagerPolicy": "best-effort",
	"reservedMemory": []any{map[string]any{"numaNode": 0, "limits": map[string]any{"memory": "400Mi"}}}, // a local EC2 has no threshold of memory
}

// testKubeletSetting changes policies of the kubelets that need a drained node, and changes them back.
func (d *deployment) testKubeletSetting() {
	var objects []*unstructured.Unstructured
	for doc := range strings.SplitSeq(harness.Web, "\n---\n") {
		o := &unstructured.Unstructured{}
		d.must(yaml.Unmarshal([]byte(doc), &o.Object))
		objects = append(objects, o)
	}
	c := d.api()
	_, err := c.Apply(d.t.Context(), objects, kube.Terms{})
	d.must(err)
	_, err = c.WaitWorkloads(d.t.Context(), objects, nil, nil)
	d.must(err)
	if pods := d.pods(); len(pods) != 2 {
		d.t.Fatalf("pods = %v", pods)
	}
	plain := d.workers.Spec.Kubelet.Config
	before, prior := d.starts(), *d
	d.workers.Spec.Kubelet.Config = maps.Clone(plain)
	d.workers.Spec.Kubelet.Config["systemReserved"] = map[string]any{"memory": "64Gi"}
	if err := d.apply(d.t.Context(), &prior); err == nil || !strings.Contains(err.Error(), "systemReserved 64Gi") || !strings.Contains(err.Error(), "and the machine has") {
		d.t.Errorf("more reserved than there is: %v", err)
	}
	if restarted := harness.Restarted(before, d.starts()); len(restarted) > 0 {
		d.t.Errorf("restarted for a refusal: %q", restarted)
	}
	d.workers.Spec.Kubelet.Config = plain
	for _, step := range []struct {
		name, policies string
		config         map[string]any
	}{
		{"pin pods to processors and memory", "Static static", pinned},
		{"pin pods no more", "None none", nil},
	} {
		before, prior, said := d.starts(), *d, len(d.progress)
		d.workers.Spec.Kubelet.Config = maps.Clone(plain)
		maps.Copy(d.workers.Spec.Kubelet.Config, step.config)
		d.stage(step.name, func() error { return d.apply(d.t.Context(), &prior) })
		d.repair(before, "worker-0/kubelet", "worker-1/kubelet")
		for _, t := range d.workers.Targets {
			if found := d.shell(t, `cd /var/lib/kubelet; sed -n 's/.*"policyName":"\([a-zA-Z]*\)".*/\1/p' memory_manager_state cpu_manager_state`); strings.Join(strings.Fields(found), " ") != step.policies {
				d.t.Errorf("%s: %s: the policies are %q", step.name, t.Node.Name, found)
			}
			if log := strings.Join(d.progress[said:], "\n"); !strings.Contains(log, t.Node.Name+": worker: draining") {
				d.t.Errorf("%s: %s was not drained", step.name, t.Node.Name)
			}
		}
	}
	// As systemd does when a machine boots. The running kubelet has no use for its notes before its next start.
	if left := d.shell(d.workers.Targets[0], "systemd-tmpfiles --boot --remove kubelet.conf; cd /var/lib/kubelet; ls cpu_manager_state memory_manager_state 2>/dev/null || :"); left != "" {
		d.t.Errorf("kept over a boot: %s", left)
	}
}

// testRuntimeSetting changes containerd's configuration. Nodes are drained one at a time within the
// disruption budget, and both accept pods again.
func (d *deployment) testRuntimeSetting() {
	before, pods := d.starts(), d.pods()
	prior := *d
	d.workers.Spec.Containerd.Registries = registry.Registries{"example.com": {{URL: "http://203.0.113.1:5000"}}}
	for k, v := range prior.workers.Spec.Containerd.Registries {
		d.workers.Spec.Containerd.Registries[k] = v
	}
	d.workers.Spec.Containerd.Config["oom_score"] = -998
	least := 2
	done := make(chan struct{})
	watched := make(chan struct{})
	go func() {
		defer close(watched)
		for {
			select {
			case <-done:
				return
			case <-time.After(100 * time.Millisecond):
				least = min(least, len(d.pods()))
			}
		}
	}()
	d.stage("roll containerd", func() error { return d.apply(d.t.Context(), &prior) })
	close(done)
	<-watched
	if least < 1 {
		d.t.Error("the disruption budget was not respected")
	}
	log := strings.Join(d.progress, "\n")
	if !strings.Contains(log, "worker-0: worker: draining") || !strings.Contains(log, "worker-1: worker: draining") {
		d.t.Error("the nodes were not drained")
	}
	for name := range d.pods() {
		if pods[name] != "" {
			d.t.Errorf("pod %s was on %s all the time, which was to be drained", name, pods[name])
		}
	}
	s, err := d.status()
	if err != nil {
		d.t.Error(err)
	}
	for _, n := range s.Nodes {
		if n.Unschedulable {
			d.t.Errorf("%s is still cordoned", n.Name)
		}
	}
	d.repair(before, "worker-0/containerd", "worker-1/containerd")
}

// testScaleWorkers replaces a worker: the new one joins, the old one is drained and removed, and
// the third is not affected.
func (d *deployment) testScaleWorkers() {
	before := d.starts()
	prior := *d
	fresh := d.launchAll(machineWanted{"worker-2", aws.RoleWorker, "10.240.0.22", "10.200.2.0/24"})
	old := d.workers.Targets[0]
	d.workers.Targets = append(slices.Clone(d.workers.Targets[1:]), fresh...)
	d.stage("one for another", func() error { return d.apply(d.t.Context(), &prior) })
	d.noDrift("after scaling")
	s, err := d.status()
	if err != nil || len(s.Nodes) != 2 || s.Nodes[1].Name != "worker-2" {
		d.t.Errorf("status = %+v, %v", s, err)
	}
	d.eventually("pods on the nodes that are left", func() error {
		pods := d.pods()
		for name, node := range pods {
			if node == old.Node.Name {
				return fmt.Errorf("pod %s is on %s", name, node)
			}
		}
		if len(pods) != 2 {
			return fmt.Errorf("pods = %v", pods)
		}
		return nil
	})
	if out := d.shell(old, "systemctl is-active kubelet containerd || :"); strings.Contains(out, "active\nactive") && !strings.Contains(out, "inactive") {
		d.t.Errorf("still running on a machine that has left: %s", out)
	}
	for _, unit := range harness.Restarted(before, d.starts()) {
		if !strings.HasPrefix(unit, "worker-2/") {
			d.t.Errorf("%s was restarted", unit)
		}
	}
}

// testClaims replaces the records of the workers and of the addon by new ones, and removes by the
// old ones. Nothing of what the new ones have may go. Then it moves a worker to another pool.
func (d *deployment) testClaims() {
	ctx := d.t.Context()
	before := d.starts()
	workers, dns := d.workerRecord, d.dns
	var err error
	dns.Claim, d.dns.Claim = "old", "new"
	d.must(d.applyAddon(ctx, dns, d.dnsInventory))
	if drift := d.observeAddon(); len(drift) > 0 {
		d.t.Errorf("another claim is drift: %q", drift)
	}
	d.stage("apply by new records", func() error {
		if d.workerRecord, err = d.engine.Apply(ctx, d.workers, nil, rollout.Record{}); err != nil {
			return err
		}
		return d.applyAddon(ctx, d.dns, nil)
	})
	d.noDrift("after the new records")
	r, err := d.engine.Observe(ctx, d.workers, workers)
	d.must(err)
	if words := finding.BySubject(r.Findings); len(words) != 2 || !strings.HasPrefix(words["worker-1"], "file /var/lib/k8s-from-scratch/claims/worker: content differs") {
		d.t.Errorf("by the old record: %q", words)
	}
	d.stage("remove by the old records", func() error {
		removal, err := d.engine.Remove(ctx, d.workers, workers)
		if err == nil && !slices.Equal(removal.Kept, []string{"worker-1", "worker-2"}) {
			err = fmt.Errorf("kept %v", removal.Kept)
		}
		kept, unkept := dns.Remove(ctx, d.fleet, d.dnsInventory)
		if len(kept) != len(d.dnsInventory) {
			d.t.Errorf("kept %v", kept)
		}
		return errors.Join(err, unkept)
	})
	d.noDrift("after the removal by the old records")
	if drift := d.observeAddon(); len(drift) > 0 {
		d.t.Errorf("drift = %q", drift)
	}

	// The other pool is applied first, which is the wrong order.
	fewer, other := d.workers, d.workers
	fewer.Targets, other.Targets = d.workers.Targets[:1], d.workers.Targets[1:]
	d.stage("move a worker to another pool", func() error {
		second, err := d.engine.Apply(ctx, other, nil, rollout.Record{})
		if err != nil {
			return err
		}
		first, err := d.engine.Apply(ctx, fewer, d.workers, d.workerRecord)
		if err != nil {
			return err
		}
		for _, p := range []struct {
			role rollout.Role
			rec  rollout.Record
		}{{fewer, first}, {other, second}} {
			if r, err := d.engine.Observe(ctx, p.role, p.rec); err != nil || len(r.Findings) > 0 {
				return fmt.Errorf("findings %v, %w", r.Findings, err)
			}
		}
		d.workerRecord, err = d.engine.Apply(ctx, d.workers, nil, rollout.Record{})
		return err
	})
	d.noDrift("with one pool again")
	if restarted := harness.Restarted(before, d.starts()); len(restarted) > 0 {
		d.t.Errorf("restarted %v", restarted)
	}
}

func (d *deployment) testWorkerRemoval() {
	ctx := d.t.Context()
	d.stage("remove", func() error {
		_, err := d.dns.Remove(ctx, d.fleet, d.dnsInventory)
		return errors.Join(err, d.remove(ctx, d.workers, d.workerRecord))
	})
	nodes, err := d.api().Nodes(ctx)
	if err != nil || len(nodes) != 0 {
		d.t.Errorf("nodes = %v, %v", nodes, err)
	}
	for _, t := range d.workers.Targets {
		if out := d.shell(t, "ls -d /etc/kubernetes/kubelet* /usr/local/bin/kubelet /etc/systemd/system/kubelet.service /var/lib/kubelet/* /run/netns/cni-* 2>/dev/null; ip -o link show cni0 2>/dev/null; nft list tables 2>/dev/null | grep cni_hostport; pgrep -a containerd-shim || :"); out != "" {
			d.t.Errorf("left behind on %s: %s", t.Node.Name, out)
		}
	}
}
