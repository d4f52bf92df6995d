package kubetest

import (
	"context"
	"maps"
	"strings"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/finding"
	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/kube"
	"github.com/k8s-from-scratch/terraform-provider-k8s/internal/e2e/harness"
)

// words returns findings in the words that a person reads.
func words(found []finding.Finding) []string {
	var out []string
	for _, f := range found {
		out = append(out, f.String())
	}
	return out
}

func testNodes(t *testing.T, c *kube.Client) {
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	nodes := c.Typed().CoreV1().Nodes()
	condition := []kube.NodeCondition{{Name: "worker-9", InternalIP: "10.240.0.29", Version: "v1.36.4"}}
	wait := func(why string) {
		t.Helper()
		if why == "" {
			if err := c.WaitNodes(ctx, condition, nil); err != nil {
				t.Error(err)
			}
			return
		}
		harness.Eventually(t, 30*time.Second, "a wait that ends with "+why, func() error {
			short, cancel := context.WithTimeout(ctx, 400*time.Millisecond)
			defer cancel()
			err := c.WaitNodes(short, condition, nil)
			if err == nil {
				t.Fatal("the node is as it should be")
			}
			if !strings.Contains(err.Error(), why) {
				return err
			}
			return nil
		})
	}
	wait("worker-9: not registered")
	n := newNode(t, c, "worker-9")

	n.Status.Addresses = []corev1.NodeAddress{{Type: corev1.NodeInternalIP, Address: "192.0.2.1"}}
	set := func() {
		t.Helper()
		var err error
		if n, err = nodes.UpdateStatus(ctx, n, metav1.UpdateOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	set()
	wait(`internal address is "192.0.2.1", wanted 10.240.0.29`)
	n.Status.Addresses[0].Address = "10.240.0.29"
	n.Status.NodeInfo.KubeletVersion = "v1.35.8"
	set()
	wait("kubelet reports v1.35.8, wanted v1.36.4")
	n.Status.NodeInfo.KubeletVersion = "v1.36.4"
	n.Status.Conditions = []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionFalse, Reason: "NetworkPluginNotReady", Message: "no CNI"}}
	set()
	wait("not ready: NetworkPluginNotReady: no CNI")
	condition[0].Registered = true
	wait("")
	condition[0].Registered = false
	n.Status.Conditions[0].Status = corev1.ConditionTrue
	set()
	wait("")

	// Labels, taints and the pod CIDR, beside those of others.
	n.Labels = map[string]string{"theirs": "kept"}
	n.Annotations = map[string]string{"theirs": "kept", "csi.volume.kubernetes.io/nodeid": "{}"}
	n.Spec.Taints = []corev1.Taint{{Key: "theirs", Effect: corev1.TaintEffectNoSchedule}}
	if _, err := nodes.Update(ctx, n, metav1.UpdateOptions{}); err != nil {
		t.Fatal(err)
	}
	get := func() *corev1.Node {
		t.Helper()
		n, err := nodes.Get(ctx, "worker-9", metav1.GetOptions{})
		if err != nil {
			t.Fatal(err)
		}
		return n
	}
	want := kube.NodeSpec{Name: "worker-9", Labels: map[string]string{"pool": "blue", "old": "1"}, PodCIDR: "10.200.9.0/24", ProviderID: "aws:///a/i-9",
		Taints: []corev1.Taint{{Key: "gpu", Value: "yes", Effect: corev1.TaintEffectNoSchedule}}}
	expect(t, "before", words(kube.NodeDrift(get(), want)), []string{
		`node label old: missing, wanted "1"`, `node label pool: missing, wanted "blue"`,
		`node taint gpu:NoSchedule: missing, wanted "yes"`, `node spec.podCIDR: missing, wanted 10.200.9.0/24`, `node spec.providerID: missing, wanted aws:///a/i-9`})
	reconcile := func() {
		t.Helper()
		if err := c.ReconcileNode(ctx, want); err != nil {
			t.Fatal(err)
		}
		expect(t, "reconciled", words(kube.NodeDrift(get(), want)), nil)
	}
	reconcile()
	version := get().ResourceVersion
	reconcile()
	if got := get().ResourceVersion; got != version {
		t.Error("reconciling what is right already wrote to the node")
	}
	delete(want.Labels, "old")
	want.Taints = nil
	expect(t, "no longer wanted", words(kube.NodeDrift(get(), want)), []string{
		`node label old: found "1", wanted none`, `node taint gpu:NoSchedule: found "yes", wanted none`})
	reconcile()
	n = get()
	if n.Labels["theirs"] != "kept" || len(n.Spec.Taints) != 1 || n.Spec.Taints[0].Key != "theirs" {
		t.Errorf("what belongs to others changed: %v, %v", n.Labels, n.Spec.Taints)
	}
	other := want
	other.PodCIDR = "10.200.8.0/24"
	if err := c.ReconcileNode(ctx, other); err == nil || !strings.Contains(err.Error(), "10.200.9.0/24") {
		t.Errorf("changing a pod CIDR = %v, wanted a refusal", err)
	}
	want.ProviderID = "aws:///a/i-8"
	other = want
	other.Labels = map[string]string{"pool": "green"}
	if err := c.ReconcileNode(ctx, other); err != nil || get().Labels["pool"] != "green" {
		t.Errorf("labels of a node with another provider ID: %v", err)
	}
	expect(t, "another provider ID", words(kube.NodeDrift(get(), other)), []string{
		`node spec.providerID: found aws:///a/i-9, wanted aws:///a/i-8: an apply makes its Node object anew`})
	was := get()
	if err := c.RemakeNode(ctx, "worker-9", want.ProviderID); err != nil {
		t.Fatal(err)
	}
	made := get()
	if made.UID == was.UID {
		t.Error("it is the same Node object")
	}
	was.Spec.ProviderID = want.ProviderID
	delete(was.Annotations, "csi.volume.kubernetes.io/nodeid") // the kubelet asks the drivers anew
	// An API server gives this taint to every new node, and the controller manager takes it away
	// (https://kubernetes.io/docs/reference/access-authn-authz/admission-controllers/#taintnodesbycondition).
	was.Spec.Taints = append(was.Spec.Taints, corev1.Taint{Key: corev1.TaintNodeNotReady, Effect: corev1.TaintEffectNoSchedule})
	if !equality.Semantic.DeepEqual(made.Spec, was.Spec) || !equality.Semantic.DeepEqual(made.Status, was.Status) ||
		!maps.Equal(made.Labels, was.Labels) || !maps.Equal(made.Annotations, was.Annotations) {
		t.Errorf("made anew:\n%+v\nwanted\n%+v", made, was)
	}
	reconcile()

	list, err := c.Nodes(ctx)
	if err != nil {
		t.Fatal(err)
	}
	expected := kube.Node{Name: "worker-9", Ready: true, Tainted: true, InternalIP: "10.240.0.29", PodCIDR: "10.200.9.0/24", Version: "v1.36.4", ProviderID: "aws:///a/i-8"}
	if len(list) != 1 || list[0] != expected {
		t.Errorf("nodes = %+v, wanted %+v", list, expected)
	}
	for range 2 { // again: it is gone already
		if err := c.DeleteNode(ctx, "worker-9"); err != nil {
			t.Fatal(err)
		}
	}
	if err := c.ReconcileNode(ctx, want); err == nil {
		t.Error("a node that is not there was reconciled")
	}
}

func testCordon(t *testing.T, c *kube.Client) {
	ctx := t.Context()
	nodes := c.Typed().CoreV1().Nodes()
	for _, tt := range []struct {
		name   string
		byHand bool // someone had cordoned the node before
		event  bool // the service for EC2's events has
	}{{"cordon-a", false, false}, {"cordon-b", true, false}, {"cordon-c", false, true}} {
		n := newNode(t, c, tt.name)
		if tt.byHand || tt.event {
			n.Spec.Unschedulable = true
			if tt.event {
				metav1.SetMetaDataAnnotation(&n.ObjectMeta, "k8s-from-scratch/ec2-event", "instance-event-1")
			}
			if _, err := nodes.Update(ctx, n, metav1.UpdateOptions{}); err != nil {
				t.Fatal(err)
			}
		}
		unschedulable := func() bool {
			n, err := nodes.Get(ctx, tt.name, metav1.GetOptions{})
			if err != nil {
				t.Fatal(err)
			}
			if !tt.byHand && !tt.event {
				left := len(kube.NodeDrift(n, kube.NodeSpec{Name: tt.name})) > 0
				if left != n.Spec.Unschedulable {
					t.Errorf("%s: a node left cordoned is drift: %v", tt.name, left)
				}
			}
			return n.Spec.Unschedulable
		}
		if err := c.Cordon(ctx, tt.name); err != nil {
			t.Fatal(err)
		}
		if !unschedulable() {
			t.Errorf("%s: not cordoned", tt.name)
		}
		if err := c.Uncordon(ctx, tt.name); err != nil {
			t.Fatal(err)
		}
		if unschedulable() != (tt.byHand || tt.event) {
			t.Errorf("%s: unschedulable = %v after uncordoning", tt.name, !tt.byHand)
		}
		if !tt.event {
			continue
		}
		// The event ends in the middle of a roll: the node has both marks, and only one is taken away.
		note := func() (cordoned bool) {
			n, err := nodes.Get(ctx, tt.name, metav1.GetOptions{})
			if err != nil {
				t.Fatal(err)
			}
			return metav1.HasAnnotation(n.ObjectMeta, "k8s-from-scratch/cordoned")
		}
		if note() {
			t.Error("a node that was uncordoned still has the provider's mark")
		}
		if err := c.Cordon(ctx, tt.name); err != nil || !note() {
			t.Errorf("a node that is cordoned for an event does not get the provider's mark: %v", err)
		}
		if _, err := nodes.Patch(ctx, tt.name, types.MergePatchType, []byte(`{"metadata": {"annotations": {"k8s-from-scratch/ec2-event": null}}}`), metav1.PatchOptions{}); err != nil {
			t.Fatal(err)
		}
		if err := c.Uncordon(ctx, tt.name); err != nil || unschedulable() || note() {
			t.Errorf("after the event the node is still cordoned: %v", err)
		}
	}
}

// testDrain runs without a kubelet: the API server deletes an evicted pod that was never started at
// once, with grace period zero.
func testDrain(t *testing.T, c *kube.Client) {
	ctx := t.Context()
	newNode(t, c, "drain-a")
	zero := int64(0)
	pod := func(name, app string) {
		t.Helper()
		_, err := c.Typed().CoreV1().Pods("default").Create(ctx, &corev1.Pod{
			ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{"app": app}},
			Spec: corev1.PodSpec{NodeName: "drain-a", TerminationGracePeriodSeconds: &zero,
				Containers: []corev1.Container{{Name: "c", Image: "example.com/c"}}},
		}, metav1.CreateOptions{})
		if err != nil {
			t.Fatal(err)
		}
	}
	if _, err := c.Typed().CoreV1().ServiceAccounts("default").Create(ctx,
		&corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Name: "default"}}, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	pod("free", "free")
	var evicted []string
	if err := c.Drain(ctx, "drain-a", 20*time.Second, func(s string) { evicted = append(evicted, s) }); err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(strings.Join(evicted, "\n"), "default/free") {
		t.Errorf("progress = %q", evicted)
	}

	// A budget that allows no disruption: the drain ends in time and names it.
	pod("guarded", "guarded")
	budget, err := c.Typed().PolicyV1().PodDisruptionBudgets("default").Create(ctx, &policyv1.PodDisruptionBudget{
		ObjectMeta: metav1.ObjectMeta{Name: "guard"},
		Spec: policyv1.PodDisruptionBudgetSpec{MinAvailable: &intstr.IntOrString{IntVal: 1},
			Selector: &metav1.LabelSelector{MatchLabels: map[string]string{"app": "guarded"}}},
	}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	// The status that the disruption controller would write.
	budget.Status = policyv1.PodDisruptionBudgetStatus{ObservedGeneration: budget.Generation, ExpectedPods: 1, DesiredHealthy: 1, CurrentHealthy: 1}
	if _, err := c.Typed().PolicyV1().PodDisruptionBudgets("default").UpdateStatus(ctx, budget, metav1.UpdateOptions{}); err != nil {
		t.Fatal(err)
	}
	// A budget counts only pods that are Ready.
	p, err := c.Typed().CoreV1().Pods("default").Get(ctx, "guarded", metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	p.Status.Phase = corev1.PodRunning
	p.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodReady, Status: corev1.ConditionTrue}}
	if _, err := c.Typed().CoreV1().Pods("default").UpdateStatus(ctx, p, metav1.UpdateOptions{}); err != nil {
		t.Fatal(err)
	}
	start := time.Now()
	err = c.Drain(ctx, "drain-a", 2*time.Second, nil)
	if err == nil || !strings.Contains(err.Error(), "default/guarded") || !strings.Contains(err.Error(), "disruption budget") {
		t.Errorf("draining a guarded node = %v, wanted the pod and the budget named", err)
	}
	if took := time.Since(start); took > 15*time.Second {
		t.Errorf("it took %s to give up", took)
	}
}

func testWorkloads(t *testing.T, c *kube.Client) {
	ctx := t.Context()
	want := objects(t, `apiVersion: apps/v1
kind: Deployment
metadata: {name: slow, namespace: default}
spec:
  replicas: 1
  selector: {matchLabels: {app: slow}}
  template:
    metadata: {labels: {app: slow}}
    spec: {containers: [{name: c, image: example.com/c}]}`)
	if _, err := c.Apply(ctx, want, kube.Terms{}); err != nil {
		t.Fatal(err)
	}
	short, cancel := context.WithTimeout(ctx, 400*time.Millisecond)
	defer cancel()
	if _, err := c.WaitWorkloads(short, want, nil, nil); err == nil || !strings.Contains(err.Error(), "Deployment default/slow") {
		t.Errorf("waiting for a deployment nobody runs = %v", err)
	}
	status := func(s appsv1.DeploymentStatus) {
		t.Helper()
		d, err := c.Typed().AppsV1().Deployments("default").Get(ctx, "slow", metav1.GetOptions{})
		if err != nil {
			t.Fatal(err)
		}
		s.ObservedGeneration = d.Generation
		d.Status = s
		if _, err := c.Typed().AppsV1().Deployments("default").UpdateStatus(ctx, d, metav1.UpdateOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	status(appsv1.DeploymentStatus{Conditions: []appsv1.DeploymentCondition{{
		Type: appsv1.DeploymentProgressing, Status: corev1.ConditionFalse, Reason: "ProgressDeadlineExceeded"}}})
	if _, err := c.WaitWorkloads(ctx, want, nil, nil); err == nil || !strings.Contains(err.Error(), "deadline") {
		t.Errorf("a deployment past its deadline = %v, wanted a prompt error", err)
	}
	status(appsv1.DeploymentStatus{Replicas: 1, UpdatedReplicas: 1, ReadyReplicas: 1, AvailableReplicas: 1})
	var told []string
	if _, err := c.WaitWorkloads(ctx, want, nil, func(s string) { told = append(told, s) }); err != nil {
		t.Error(err)
	}
	expect(t, "progress", told, []string{"Deployment default/slow is available"})
}
