// Package kubetest tests package kube against a real API server on loopback. There is no controller
// manager, scheduler or kubelet: the tests write to the API what these would.
package kubetest

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/yaml"

	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/access"
	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/component"
	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/kube"
	"github.com/k8s-from-scratch/terraform-provider-k8s/internal/e2e/local"
)

// TestAPIServer runs all subtests against one API server. Each uses its own objects.
func TestAPIServer(t *testing.T) {
	p := local.NewPKI(t)
	s := local.StartAPIServer(t, p)
	c := s.Client(t, p)
	t.Run("objects", func(t *testing.T) { testObjects(t, c) })
	t.Run("new kinds", func(t *testing.T) { testNewKinds(t, c) })
	t.Run("secrets are not shown", func(t *testing.T) { testSecretDrift(t, c) })
	t.Run("system objects", func(t *testing.T) { testSystemObjects(t, c) })
	t.Run("leases", func(t *testing.T) { testLeases(t, c) })
	t.Run("nodes", func(t *testing.T) { testNodes(t, c) })
	t.Run("cordon", func(t *testing.T) { testCordon(t, c) })
	t.Run("drain", func(t *testing.T) { testDrain(t, c) })
	t.Run("workloads", func(t *testing.T) { testWorkloads(t, c) })
	t.Run("pods of workloads", func(t *testing.T) { testPodsOfWorkloads(t, c) })
	t.Run("node trial", func(t *testing.T) { testNodeTrial(t, c) })
	t.Run("access", func(t *testing.T) { testAccess(t, s, p) })
	t.Run("stopped", func(t *testing.T) { testStopped(t, s, c) })
}

func objects(t *testing.T, manifests string) []*unstructured.Unstructured {
	t.Helper()
	var out []*unstructured.Unstructured
	for doc := range strings.SplitSeq(manifests, "\n---\n") {
		o := &unstructured.Unstructured{}
		if err := yaml.Unmarshal([]byte(doc), &o.Object); err != nil {
			t.Fatal(err)
		}
		out = append(out, o)
	}
	return out
}

// drift returns "object: words" lines.
func drift(t *testing.T, c *kube.Client, want []*unstructured.Unstructured) []string {
	t.Helper()
	found, err := c.Drift(t.Context(), want, kube.Terms{})
	if err != nil {
		t.Fatal(err)
	}
	var out []string
	for _, f := range found {
		out = append(out, f.Subject+": "+f.String())
	}
	return out
}

func expect(t *testing.T, what string, got, want []string) {
	t.Helper()
	if !slices.Equal(got, want) {
		t.Errorf("%s:\n got %q\nwant %q", what, got, want)
	}
}

const web = `apiVersion: v1
kind: Namespace
metadata: {name: web}
---
apiVersion: v1
kind: ConfigMap
metadata: {name: settings, namespace: web, labels: {app: web}}
data: {colour: blue, size: "3"}
---
apiVersion: apps/v1
kind: Deployment
metadata: {name: web, namespace: web}
spec:
  replicas: 2
  selector: {matchLabels: {app: web}}
  template:
    metadata: {labels: {app: web}}
    spec:
      containers:
      - {name: web, image: "example.com/web:1", resources: {requests: {cpu: "0.5", memory: 64Mi}}}
      - {name: log, image: "example.com/log:1"}
---
apiVersion: v1
kind: Service
metadata: {name: web, namespace: web}
spec: {selector: {app: web}, ports: [{port: 80, targetPort: 8080}]}`

func testObjects(t *testing.T, c *kube.Client) {
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	want := objects(t, web)
	expect(t, "before", drift(t, c, want), []string{
		"Namespace web: missing", "ConfigMap web/settings: missing", "Deployment web/web: missing", "Service web/web: missing"})

	first, err := c.Apply(ctx, want, kube.Terms{})
	if err != nil {
		t.Fatal(err)
	}
	inventory := first.Objects
	if len(inventory) != 4 {
		t.Errorf("inventory = %v, wanted 4 objects", inventory)
	}
	expect(t, "applied", drift(t, c, want), nil)

	// Fields that others add are theirs; a change to one of our fields is drift.
	client := c.Typed()
	patch := func(kind, body string) {
		t.Helper()
		var err error
		switch kind {
		case "configmap":
			_, err = client.CoreV1().ConfigMaps("web").Patch(ctx, "settings", types.MergePatchType, []byte(body), metav1.PatchOptions{FieldManager: "somebody"})
		case "deployment":
			_, err = client.AppsV1().Deployments("web").Patch(ctx, "web", types.StrategicMergePatchType, []byte(body), metav1.PatchOptions{FieldManager: "somebody"})
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	patch("configmap", `{"data":{"extra":"theirs"},"metadata":{"annotations":{"note":"theirs"}}}`)
	expect(t, "an addition by others", drift(t, c, want), nil)
	patch("configmap", `{"data":{"colour":"red"},"metadata":{"labels":{"app":null}}}`)
	patch("deployment", `{"spec":{"replicas":5,"template":{"spec":{"containers":[{"name":"log","image":"example.com/log:2"}]}}}}`)
	expect(t, "damage", drift(t, c, want), []string{
		`ConfigMap web/settings: data.colour: found "red" (set by somebody), wanted "blue"`,
		`ConfigMap web/settings: metadata.labels: found nothing, wanted {"app":"web"}`,
		`Deployment web/web: spec.replicas: found 5 (set by somebody), wanted 2`,
		`Deployment web/web: spec.template.spec.containers[log].image: found "example.com/log:2" (set by somebody), wanted "example.com/log:1"`,
	})
	if _, err := c.Apply(ctx, want, kube.Terms{}); err != nil {
		t.Fatal(err)
	}
	expect(t, "repaired", drift(t, c, want), nil)
	cm, err := client.CoreV1().ConfigMaps("web").Get(ctx, "settings", metav1.GetOptions{})
	if err != nil || cm.Data["extra"] != "theirs" {
		t.Errorf("the repair took away what others had added: %v, %v", cm.Data, err)
	}

	// A field that is no longer wanted is removed; an object that is no longer wanted is deleted.
	if err := unstructured.SetNestedStringMap(want[1].Object, map[string]string{"colour": "blue"}, "data"); err != nil {
		t.Fatal(err)
	}
	expect(t, "a field dropped", drift(t, c, want), []string{`ConfigMap web/settings: data.size: found "3", wanted nothing`})
	fewer := want[:3]
	applied, err := c.Apply(ctx, fewer, kube.Terms{})
	if err != nil {
		t.Fatal(err)
	}
	for range 2 { // again: it is gone already
		left, err := c.Prune(ctx, inventory, applied.Objects)
		if err != nil || len(left) != 0 {
			t.Fatalf("prune left %v: %v", left, err)
		}
	}
	if _, err := client.CoreV1().Services("web").Get(ctx, "web", metav1.GetOptions{}); !apierrors.IsNotFound(err) {
		t.Errorf("the pruned service: %v, wanted not found", err)
	}
	if _, err := client.AppsV1().Deployments("web").Get(ctx, "web", metav1.GetOptions{}); err != nil {
		t.Errorf("the kept deployment: %v", err)
	}

	// A change of an immutable field is a finding, not an error.
	changed := fewer[2].DeepCopy()
	_ = unstructured.SetNestedStringMap(changed.Object, map[string]string{"app": "other"}, "spec", "selector", "matchLabels")
	_ = unstructured.SetNestedStringMap(changed.Object, map[string]string{"app": "other"}, "spec", "template", "metadata", "labels")
	got := drift(t, c, []*unstructured.Unstructured{changed})
	expect(t, "an immutable field", got, []string{"Deployment web/web: spec.selector cannot be changed: an apply deletes the object and creates it again"})
	var immutable *kube.ImmutableError
	if _, err := c.Apply(ctx, []*unstructured.Unstructured{changed}, kube.Terms{}); !errors.As(err, &immutable) {
		t.Errorf("a change of an immutable field = %v", err)
	}

	// A finalizer keeps an object: the wait ends with the context and names the object.
	patch("configmap", `{"metadata":{"finalizers":["example.com/held"]}}`)
	short, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	ref := kube.RefOf(fewer[1])
	left, err := c.Prune(short, []kube.ObjectRef{ref}, nil)
	if err == nil || !strings.Contains(err.Error(), "example.com/held") || len(left) != 1 || left[0] != ref {
		t.Errorf("pruning a held object = %v, %v", left, err)
	}
}

const widgets = `apiVersion: example.com/v1
kind: Widget
metadata: {name: one}
spec: {size: 1}
---
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: widgets.example.com}
spec:
  group: example.com
  scope: Namespaced
  names: {plural: widgets, singular: widget, kind: Widget}
  versions:
  - name: v1
    served: true
    storage: true
    schema: {openAPIV3Schema: {type: object, properties: {spec: {type: object, properties: {size: {type: integer}}}}}}`

// testNewKinds applies an object together with the definition of its kind, which the API server
// does not know before.
func testNewKinds(t *testing.T, c *kube.Client) {
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	want := objects(t, widgets)
	expect(t, "before", drift(t, c, want), []string{"Widget one: missing", "CustomResourceDefinition widgets.example.com: missing"})
	first, err := c.Apply(ctx, want, kube.Terms{})
	if err != nil {
		t.Fatal(err)
	}
	inventory := first.Objects
	if !slices.ContainsFunc(inventory, func(r kube.ObjectRef) bool { return r.String() == "Widget default/one" && r.Same(kube.RefOf(want[0])) }) {
		t.Errorf("inventory = %v, wanted the widget in the default namespace", inventory)
	}
	expect(t, "applied", drift(t, c, want), nil)
	if left, err := c.Prune(ctx, inventory, nil); err != nil {
		t.Errorf("prune left %v: %v", left, err)
	}
}

func testSecretDrift(t *testing.T, c *kube.Client) {
	ctx := t.Context()
	want := objects(t, `apiVersion: v1
kind: Secret
metadata: {name: token, namespace: default}
data: {password: aHVudGVyMg==}`)
	if _, err := c.Apply(ctx, want, kube.Terms{}); err != nil {
		t.Fatal(err)
	}
	_, err := c.Typed().CoreV1().Secrets("default").Patch(ctx, "token", types.MergePatchType,
		[]byte(`{"data":{"password":"c3dvcmRmaXNo"}}`), metav1.PatchOptions{FieldManager: "somebody"})
	if err != nil {
		t.Fatal(err)
	}
	expect(t, "drift", drift(t, c, want), []string{"Secret default/token: data.password: found a value (hidden) (set by somebody), wanted a value (hidden)"})
}

func testSystemObjects(t *testing.T, c *kube.Client) {
	ops := access.Entry{Group: "oidc:/ops", ClusterRole: "view"}
	spec := component.ControlPlaneSpec{Access: []access.Entry{ops, {User: "oidc:ada@example.com", Role: "deployer", Namespace: "default"}}}
	want := spec.SystemObjects()
	if len(drift(t, c, want)) == 0 {
		t.Fatal("a fresh API server has the system objects already")
	}
	terms := kube.Terms{Force: true, Replace: kube.RefsOf(want)}
	apply := func() {
		t.Helper()
		if _, err := c.Apply(t.Context(), want, terms); err != nil {
			t.Fatal(err)
		}
		expect(t, "applied", drift(t, c, want), nil)
	}
	apply()

	// Somebody makes a binding anew, with another role: roleRef cannot be changed.
	bindings, name := c.Typed().RbacV1().ClusterRoleBindings(), ops.Binding().GetName()
	edited, err := bindings.Get(t.Context(), name, metav1.GetOptions{})
	if err == nil {
		err = bindings.Delete(t.Context(), name, metav1.DeleteOptions{})
	}
	if err == nil {
		edited.ResourceVersion, edited.UID, edited.RoleRef.Name = "", "", "cluster-admin"
		_, err = bindings.Create(t.Context(), edited, metav1.CreateOptions{})
	}
	if err != nil {
		t.Fatal(err)
	}
	expect(t, "edited", drift(t, c, want), []string{"ClusterRoleBinding " + name + ": roleRef cannot be changed: an apply deletes the object and creates it again"})
	apply()

	found := 0
	for _, kind := range []string{"ClusterRoleBinding", "RoleBinding"} {
		labelled, err := c.Labelled(t.Context(), rbacv1.SchemeGroupVersion.WithKind(kind), access.Label)
		if err != nil {
			t.Fatal(err)
		}
		for _, o := range labelled {
			if e, ok := access.Read(o); !ok || !slices.Contains(spec.Access, e) {
				t.Errorf("read %s from %s (%t)", e, kube.RefOf(o), ok)
			}
			found++
		}
	}
	if found != len(spec.Access) {
		t.Errorf("%d bindings have the label, wanted %d", found, len(spec.Access))
	}
	role, space := kube.RefOf(spec.Access[1].RoleObject()), kube.ObjectRef{APIVersion: "v1", Kind: "Namespace", Name: "default"}
	absent, err := c.Absent(t.Context(), []kube.ObjectRef{space, role, kube.RefOf(ops.RoleObject()), role})
	if err != nil || !slices.Equal(absent, []kube.ObjectRef{role}) {
		t.Errorf("absent are %v (%v), wanted %s", absent, err, role)
	}
}

func testLeases(t *testing.T, c *kube.Client) {
	ctx := t.Context()
	if leases, err := c.Leases(ctx); err != nil || len(leases) != 0 {
		t.Fatalf("leases = %v, %v; nobody has taken any", leases, err)
	}
	identity, seconds, transitions := "controller-1_0b5c7f9e", int32(15), int32(2)
	renewed := metav1.NewMicroTime(time.Date(2026, 5, 1, 12, 0, 0, 0, time.UTC))
	for _, name := range []string{"kube-scheduler", "kube-controller-manager", "somebody-else"} {
		_, err := c.Typed().CoordinationV1().Leases("kube-system").Create(ctx, &coordinationv1.Lease{
			ObjectMeta: metav1.ObjectMeta{Name: name},
			Spec: coordinationv1.LeaseSpec{HolderIdentity: &identity, LeaseDurationSeconds: &seconds,
				RenewTime: &renewed, LeaseTransitions: &transitions},
		}, metav1.CreateOptions{})
		if err != nil {
			t.Fatal(err)
		}
	}
	leases, err := c.Leases(ctx)
	if err != nil {
		t.Fatal(err)
	}
	want := kube.Lease{Name: "kube-controller-manager", Holder: "controller-1", Identity: identity,
		RenewTime: renewed.Time, Duration: 15 * time.Second, Transitions: 2}
	if len(leases) != 2 || leases[0] != want || leases[1].Name != "kube-scheduler" {
		t.Errorf("leases = %+v", leases)
	}
}

func testAccess(t *testing.T, s *local.APIServer, p local.PKI) {
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	v, err := s.Client(t, p).Version(ctx)
	if err != nil || !strings.HasPrefix(v, "v1.") {
		t.Errorf("version = %q, %v", v, err)
	}
	// A server, or a client, of another cluster is an immediate error, however long the caller
	// would wait.
	other := local.NewPKI(t)
	mixed := p
	mixed.Ref.KubernetesCA = other.Ref.KubernetesCA
	mixed.Store = other.Store
	start := time.Now()
	if err := s.Client(t, mixed).WaitReady(ctx, 100*time.Millisecond, nil); err == nil || !kube.Permanent(err) {
		t.Errorf("WaitReady on a foreign server = %v, wanted a certificate error", err)
	}
	if took := time.Since(start); took > 5*time.Second {
		t.Errorf("it took %s to notice", took)
	}
}

func testStopped(t *testing.T, s *local.APIServer, c *kube.Client) {
	s.Stop()
	if err := c.Ready(t.Context()); err == nil {
		t.Error("a stopped API server is ready")
	}
	ctx, cancel := context.WithTimeoutCause(t.Context(), time.Second, errors.New("patience ended"))
	defer cancel()
	err := c.WaitReady(ctx, 50*time.Millisecond, nil)
	if err == nil || !strings.Contains(err.Error(), "patience ended") || !strings.Contains(err.Error(), "connection refused") {
		t.Errorf("WaitReady = %v, wanted the cause and the last condition", err)
	}
	died := errors.New("died")
	if err := c.WaitReady(t.Context(), 50*time.Millisecond, func(context.Context) error { return died }); !errors.Is(err, died) {
		t.Errorf("WaitReady with a dead unit = %v", err)
	}
}

func newNode(t *testing.T, c *kube.Client, name string) *corev1.Node {
	t.Helper()
	n, err := c.Typed().CoreV1().Nodes().Create(t.Context(), &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name}}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	return n
}
