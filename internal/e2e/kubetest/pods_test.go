package kubetest

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/kube"
)

// controllerOf returns the owner reference that a controller writes into its objects.
func controllerOf(kind string, o metav1.Object) []metav1.OwnerReference {
	return []metav1.OwnerReference{*metav1.NewControllerRef(o, appsv1.SchemeGroupVersion.WithKind(kind))}
}

const daemons = `apiVersion: apps/v1
kind: Deployment
metadata: {name: api, namespace: daemons}
spec:
  replicas: 1
  selector: {matchLabels: {app: api}}
  template: {metadata: {labels: {app: api}}, spec: {containers: [{name: c, image: example.com/c}]}}
---
apiVersion: apps/v1
kind: DaemonSet
metadata: {name: agent, namespace: daemons}
spec:
  selector: {matchLabels: {app: agent}}
  template: {metadata: {labels: {app: agent}}, spec: {containers: [{name: c, image: example.com/c}]}}
---
apiVersion: apps/v1
kind: StatefulSet
metadata: {name: db, namespace: daemons}
spec:
  replicas: 1
  selector: {matchLabels: {app: db}}
  template: {metadata: {labels: {app: db}}, spec: {containers: [{name: c, image: example.com/c}]}}`

// testPodsOfWorkloads makes pods of two revisions of each kind of workload fail, each for another
// reason. Only those of the present revision count.
func testPodsOfWorkloads(t *testing.T, c *kube.Client) {
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	apps, core := c.Typed().AppsV1(), c.Typed().CoreV1()
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	want := objects(t, daemons)
	_, err := core.Namespaces().Create(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "daemons"}}, metav1.CreateOptions{})
	must(err)
	_, err = core.ServiceAccounts("daemons").Create(ctx, &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Name: "default"}}, metav1.CreateOptions{})
	if err != nil && !apierrors.IsAlreadyExists(err) {
		t.Fatal(err)
	}
	_, err = c.Apply(ctx, want, kube.Terms{})
	must(err)
	spec := corev1.PodSpec{Containers: []corev1.Container{{Name: "c", Image: "example.com/c"}}}
	pod := func(name string, labels map[string]string, owner []metav1.OwnerReference, reason, message string) {
		t.Helper()
		p, err := core.Pods("daemons").Create(ctx, &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: labels, OwnerReferences: owner}, Spec: spec}, metav1.CreateOptions{})
		must(err)
		p.Status.ContainerStatuses = []corev1.ContainerStatus{{Name: "c", State: corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{Reason: reason, Message: message}}}}
		_, err = core.Pods("daemons").UpdateStatus(ctx, p, metav1.UpdateOptions{})
		must(err)
	}

	d, err := apps.Deployments("daemons").Get(ctx, "api", metav1.GetOptions{})
	must(err)
	d.Annotations = map[string]string{"deployment.kubernetes.io/revision": "2"}
	d, err = apps.Deployments("daemons").Update(ctx, d, metav1.UpdateOptions{})
	must(err)
	d.Status = appsv1.DeploymentStatus{ObservedGeneration: d.Generation, Replicas: 2, UpdatedReplicas: 1, UnavailableReplicas: 2}
	d, err = apps.Deployments("daemons").UpdateStatus(ctx, d, metav1.UpdateOptions{})
	must(err)
	for revision, name := range map[string]string{"1": "api-old", "2": "api-new"} {
		labels := map[string]string{"app": "api", "pod-template-hash": name}
		s, err := apps.ReplicaSets("daemons").Create(ctx, &appsv1.ReplicaSet{
			ObjectMeta: metav1.ObjectMeta{Name: name, Labels: labels, OwnerReferences: controllerOf("Deployment", d),
				Annotations: map[string]string{"deployment.kubernetes.io/revision": revision}},
			Spec: appsv1.ReplicaSetSpec{Selector: &metav1.LabelSelector{MatchLabels: labels},
				Template: corev1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{Labels: labels}, Spec: spec}},
		}, metav1.CreateOptions{})
		must(err)
		pod(name+"-1", labels, controllerOf("ReplicaSet", s), "ImagePullBackOff", "of "+name)
	}

	a, err := apps.DaemonSets("daemons").Get(ctx, "agent", metav1.GetOptions{})
	must(err)
	a.Status.ObservedGeneration, a.Status.DesiredNumberScheduled, a.Status.UpdatedNumberScheduled = a.Generation, 2, 2
	a, err = apps.DaemonSets("daemons").UpdateStatus(ctx, a, metav1.UpdateOptions{})
	must(err)
	for i, name := range []string{"agent-old", "agent-new"} {
		labels := map[string]string{"app": "agent", "controller-revision-hash": name}
		_, err := apps.ControllerRevisions("daemons").Create(ctx, &appsv1.ControllerRevision{
			ObjectMeta: metav1.ObjectMeta{Name: name, Labels: labels, OwnerReferences: controllerOf("DaemonSet", a)}, Revision: int64(i + 1),
			Data: runtime.RawExtension{Raw: []byte("{}")}}, metav1.CreateOptions{})
		must(err)
		pod(name+"-1", labels, controllerOf("DaemonSet", a), "InvalidImageName", "of "+name)
	}

	s, err := apps.StatefulSets("daemons").Get(ctx, "db", metav1.GetOptions{})
	must(err)
	s.Status = appsv1.StatefulSetStatus{ObservedGeneration: s.Generation, Replicas: 1, UpdateRevision: "db-new"}
	s, err = apps.StatefulSets("daemons").UpdateStatus(ctx, s, metav1.UpdateOptions{})
	must(err)
	for _, name := range []string{"db-old", "db-new"} {
		pod(name+"-1", map[string]string{"app": "db", "controller-revision-hash": name}, controllerOf("StatefulSet", s), "ErrImagePull", "of "+name)
	}
	// A pod that only has the same labels belongs to someone else.
	pod("stranger", map[string]string{"app": "db", "controller-revision-hash": "db-new"}, nil, "ErrImagePull", "of a stranger")

	short, cancel := context.WithTimeoutCause(ctx, 6*time.Second, errors.New("patience ended"))
	defer cancel()
	var told []string
	_, err = c.WaitWorkloads(short, want, nil, func(s string) { told = append(told, s) })
	if err == nil {
		t.Fatal("nothing was waited for")
	}
	for _, words := range []string{
		"patience ended",
		"Deployment daemons/api: 1 old replicas are pending termination: pod daemons/api-new-1, container c: ImagePullBackOff: of api-new",
		"DaemonSet daemons/agent: 0 of 2 updated pods are available: pod daemons/agent-new-1, container c: InvalidImageName: of agent-new",
		"StatefulSet daemons/db: Waiting for 1 pods to be ready: pod daemons/db-new-1, container c: ErrImagePull: of db-new",
	} {
		if !strings.Contains(err.Error(), words) {
			t.Errorf("%v\nlacks %q", err, words)
		}
	}
	for _, not := range []string{"-old", "stranger", "more)"} {
		if strings.Contains(err.Error(), not) {
			t.Errorf("%v\nspeaks of %q", err, not)
		}
	}
	expect(t, "progress", told, []string{
		"Deployment daemons/api: pod daemons/api-new-1, container c: ImagePullBackOff: of api-new",
		"DaemonSet daemons/agent: pod daemons/agent-new-1, container c: InvalidImageName: of agent-new",
		"StatefulSet daemons/db: pod daemons/db-new-1, container c: ErrImagePull: of db-new"})
}

// testNodeTrial starts a pod on a node, with the test as its kubelet.
func testNodeTrial(t *testing.T, c *kube.Client) {
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	core := c.Typed().CoreV1()
	pods := core.Pods("kube-system")
	trial := kube.Trial{Node: "worker-7", Image: "example.com/pause:1"}

	// The controller manager has not created the service account yet.
	short, cancel := context.WithTimeoutCause(ctx, 6*time.Second, errors.New("patience ended"))
	defer cancel()
	if err := c.Try(short, trial); err == nil || !strings.Contains(err.Error(), "patience ended") || !strings.Contains(err.Error(), `serviceaccount "default" not found`) {
		t.Errorf("without a service account: %v", err)
	}
	_, err := core.ServiceAccounts("kube-system").Create(ctx, &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Name: "default"}}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}

	// An interrupted operation has left a pod, and the namespace enforces the "restricted" Pod
	// Security Standard.
	if _, err := core.Namespaces().Patch(ctx, "kube-system", "application/merge-patch+json",
		[]byte(`{"metadata":{"labels":{"pod-security.kubernetes.io/enforce":"restricted"}}}`), metav1.PatchOptions{}); err != nil {
		t.Fatal(err)
	}
	stop, first := make(chan struct{}), make(chan struct{})
	seen := map[string]bool{}
	kubelet := func(status corev1.PodStatus) {
		for {
			select {
			case <-stop:
				return
			case <-time.After(50 * time.Millisecond):
			}
			p, err := pods.Get(ctx, "node-trial-worker-7", metav1.GetOptions{})
			if err != nil || p.Spec.NodeName != "worker-7" || p.Status.Phase != corev1.PodPending || seen[string(p.UID)] {
				continue
			}
			seen[string(p.UID)] = true
			if len(seen) == 1 {
				close(first)
				continue // the pod that was left never starts
			}
			p.Status = status
			_, _ = pods.UpdateStatus(ctx, p, metav1.UpdateOptions{})
		}
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		kubelet(corev1.PodStatus{Phase: corev1.PodRunning, ContainerStatuses: []corev1.ContainerStatus{{Name: "pause",
			State: corev1.ContainerState{Running: &corev1.ContainerStateRunning{StartedAt: metav1.Now()}}}}})
	}()
	left, err := pods.Create(ctx, &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "node-trial-worker-7"}, Spec: restricted("worker-7")}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	select {
	case <-first:
	case <-ctx.Done():
		t.Fatal("nobody has seen the pod that is left")
	}
	if err := c.Try(ctx, trial); err != nil {
		t.Error(err)
	}
	close(stop)
	<-done
	if len(seen) != 2 {
		t.Errorf("the kubelet has seen %d pods, wanted the one left and another", len(seen))
	}
	if _, err := pods.Get(ctx, left.Name, metav1.GetOptions{}); !apierrors.IsNotFound(err) {
		t.Errorf("afterwards the pod: %v, wanted none", err)
	}

	// A permanent refusal is reported soon, with what to do.
	if _, err := core.Namespaces().Patch(ctx, "kube-system", "application/merge-patch+json",
		[]byte(`{"metadata":{"labels":{"pod-security.kubernetes.io/enforce":"baseline"}}}`), metav1.PatchOptions{}); err != nil {
		t.Fatal(err)
	}
	hosts := trial
	hosts.HostNetwork = true
	if err := c.Try(ctx, hosts); err == nil || !strings.Contains(err.Error(), "hostNetwork=true") || !strings.Contains(err.Error(), "label k8s-from-scratch/node-trial") {
		t.Errorf("a refused pod: %v", err)
	}
	if _, err := core.Namespaces().Patch(ctx, "kube-system", "application/merge-patch+json",
		[]byte(`{"metadata":{"labels":{"pod-security.kubernetes.io/enforce":null}}}`), metav1.PatchOptions{}); err != nil {
		t.Fatal(err)
	}

	newNode(t, c, "worker-7")
	if err := c.SetProven(ctx, "worker-7", "as it is"); err != nil {
		t.Fatal(err)
	}
	if nodes, err := c.Nodes(ctx, "worker-7"); err != nil || len(nodes) != 1 || nodes[0].Proven != "as it is" {
		t.Errorf("the note on the node: %+v, %v", nodes, err)
	}
	if err := c.SetProven(ctx, "nobody", "x"); err != nil {
		t.Errorf("a node that is gone: %v", err)
	}
}

// restricted returns a pod that the "restricted" Pod Security Standard allows.
func restricted(node string) corev1.PodSpec {
	yes, no, user := true, false, int64(1000)
	return corev1.PodSpec{NodeName: node, AutomountServiceAccountToken: &no,
		SecurityContext: &corev1.PodSecurityContext{RunAsNonRoot: &yes, RunAsUser: &user, SeccompProfile: &corev1.SeccompProfile{Type: corev1.SeccompProfileTypeRuntimeDefault}},
		Containers: []corev1.Container{{Name: "c", Image: "example.com/c", SecurityContext: &corev1.SecurityContext{
			AllowPrivilegeEscalation: &no, Capabilities: &corev1.Capabilities{Drop: []corev1.Capability{"ALL"}}}}}}
}
