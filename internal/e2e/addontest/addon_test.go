package addontest

import (
	"fmt"
	"strings"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/k8s-from-scratch/terraform-provider-k8s/internal/provider/providertest"
)

const (
	shop    = "/apis/apps/v1/namespaces/default/deployments/shop"
	webhook = "/apis/admissionregistration.k8s.io/v1/validatingwebhookconfigurations/shop"
	orders  = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions/orders.example.com"
	role    = "/apis/rbac.authorization.k8s.io/v1/clusterroles/monitoring"
	order   = "/apis/example.com/v1/namespaces/default/orders/first"
)

// knownManifests: the second plan of addons that many clusters have is empty.
func (w world) knownManifests() {
	for name, config := range map[string]values{
		"coredns": w.addon("coredns"), "storage": w.addon("storage", w.read("storage.yaml")), "metrics-server": w.addon("metrics-server"),
		"cloud-controller-manager": w.addon("cloud-controller-manager"),
	} {
		i := w.Instance("k8s_addon")
		i.Must(config)
		i.Converged(config)
		w.t.Logf("%s: %d objects", name, len(i.Get("objects").(values)))
	}
}

// controllers: what controllers own stays theirs, in plans and in applies.
func (w world) controllers() {
	config := w.addon("controllers", w.read("controllers.yaml"))
	i := w.Instance("k8s_addon")
	i.Must(config)
	w.eventually("the role is aggregated", func() bool { return strings.Contains(w.value(role, "rules"), "pods") })
	w.eventually("the autoscaler has scaled", func() bool { return w.value(shop, "spec", "replicas") == "3" })
	w.as("ca-injector", webhook, `{apiVersion: admissionregistration.k8s.io/v1, kind: ValidatingWebhookConfiguration, metadata: {name: shop}, webhooks: [{name: shop.example.com, clientConfig: {caBundle: `+w.bundle+`}}]}`)
	w.writes("ca-injector", orders, `{"spec":{"conversion":{"webhook":{"clientConfig":{"caBundle":"`+w.bundle+`"}}}}}`)
	w.writes("order-controller", order+"/status", `{"status":{"phase":"Paid"}}`)
	i.Converged(config)

	// An apply of something else leaves it as well.
	config["manifests"] = []any{strings.Replace(w.read("controllers.yaml"), "shop:1", "shop:2", 1)}
	i.Must(config)
	i.Converged(config)
	for _, x := range []struct{ what, got, want string }{
		{"rules", w.value(role, "rules", 0, "resources", 0), `"pods"`},
		{"replicas", w.value(shop, "spec", "replicas"), "3"},
		{"the webhook's bundle", w.value(webhook, "webhooks", 0, "clientConfig", "caBundle"), `"` + w.bundle + `"`},
		{"the bundle of orders", w.value(orders, "spec", "conversion", "webhook", "clientConfig", "caBundle"), `"` + w.bundle + `"`},
		{"the order's phase", w.value(order, "status", "phase"), `"Paid"`},
		{"the image", w.value(shop, "spec", "template", "spec", "containers", 0, "image"), `"example.com/shop:2"`},
	} {
		if x.got != x.want {
			w.t.Errorf("%s: %s, wanted %s", x.what, x.got, x.want)
		}
	}

	// What a person has written is drift, in JSON and with the name of the tool.
	w.writes("kubectl-edit", "/apis/rbac.authorization.k8s.io/v1/clusterroles/monitoring-pods", `{"rules":null}`)
	w.writes("kubectl-edit", shop, `{"spec":{"template":{"spec":{"hostNetwork":true,"containers":[{"name":"shop","image":"example.com/shop:3"}]}}}}`)
	i.Refresh()
	drift := fmt.Sprint(i.Get("drift"))
	for _, want := range []string{
		`rules: found nothing (set by kubectl-edit), wanted [{"apiGroups":[""],"resources":["pods"],"verbs":["get"]}]`,
		`spec.template.spec.containers[shop].image: found "example.com/shop:3" (set by kubectl-edit), wanted "example.com/shop:2"`,
	} {
		if !strings.Contains(drift, want) {
			w.t.Errorf("the drift is %s, without %s", drift, want)
		}
	}
	i.Must(config)
	i.Converged(config)
}

const migrate = `{apiVersion: batch/v1, kind: Job, metadata: {name: NAME, namespace: default}, spec: {ttlSecondsAfterFinished: 0, backoffLimit: 0,
template: {spec: {restartPolicy: Never, containers: [{name: migrate, image: "example.com/migrate:1"}]}}}}`

func job(name string) string { return strings.Replace(migrate, "NAME", name, 1) }

// end ends every pod of a Job, as a kubelet would, until the test ends.
func (w world) end(name string, phase corev1.PodPhase, exit int32) {
	ctx := w.t.Context()
	pods := w.kube.CoreV1().Pods("default")
	go func() {
		for ; ctx.Err() == nil; time.Sleep(100 * time.Millisecond) {
			list, err := pods.List(ctx, metav1.ListOptions{LabelSelector: batchv1.JobNameLabel + "=" + name})
			if err != nil {
				continue
			}
			for _, pod := range list.Items {
				pod.Status.Phase = phase
				pod.Status.ContainerStatuses = []corev1.ContainerStatus{{Name: "migrate", Image: "x", State: corev1.ContainerState{
					Terminated: &corev1.ContainerStateTerminated{ExitCode: exit, FinishedAt: metav1.Now()}}}}
				_, _ = pods.UpdateStatus(ctx, &pod, metav1.UpdateOptions{}) // it may be gone by now
			}
		}
	}()
}

// runs counts the times that a Job was made.
func (w world) runs(name string) int {
	w.t.Helper()
	events, err := w.kube.CoreV1().Events("default").List(w.context(), metav1.ListOptions{FieldSelector: "involvedObject.kind=Job,reason=SuccessfulCreate,involvedObject.name=" + name})
	w.must(err)
	return len(events.Items)
}

// jobs: a Job that has finished and is gone is done until its manifest changes.
func (w world) jobs() {
	const path = "/apis/batch/v1/namespaces/default/jobs/"
	for name, wait := range map[string]bool{"waited": true, "unwaited": false} {
		w.end(name, corev1.PodSucceeded, 0)
		config := providertest.With(w.addon(name, job(name)), values{"wait": wait})
		i := w.Instance("k8s_addon")
		i.Must(config)
		w.eventually("the Job is gone", func() bool { return w.value(path+name) == "" })
		i.Converged(config)
		if got := fmt.Sprint(i.Get("finished_jobs")); got != "[Job default/"+name+"]" {
			w.t.Errorf("finished_jobs is %s", got)
		}
		// An apply of something else does not run it again.
		config["manifests"] = []any{job(name), `{apiVersion: v1, kind: ConfigMap, metadata: {name: ` + name + `}}`}
		i.Must(config)
		i.Converged(config)
		if n := w.runs(name); n > 1 {
			w.t.Errorf("%s has run %d times", name, n)
		}
		config["manifests"] = []any{strings.Replace(job(name), "migrate:1", "migrate:2", 1)}
		i.Must(config)
		w.eventually("the changed Job has run", func() bool { return w.runs(name) == 2 && w.value(path+name) == "" })
		i.Converged(config)
	}
}

// jobFails: a Job that fails is not done, and the apply says why.
func (w world) jobFails() {
	w.end("failing", corev1.PodFailed, 1)
	config := providertest.With(w.addon("failing", job("failing")), values{"wait": true})
	i := w.Instance("k8s_addon")
	said := i.CarryOut(i.Plan(config)).Failure()
	if !strings.Contains(said, "Job default/failing: failed: BackoffLimitExceeded") {
		w.t.Errorf("the apply says %q", said)
	}
}

const settings = "/api/v1/namespaces/default/configmaps/settings"

// ignoredFields: a field that is named is left to others, whoever they are. The object gets it once.
func (w world) ignoredFields() {
	config := w.addon("settings", `{apiVersion: v1, kind: ConfigMap, metadata: {name: settings, namespace: default}, data: {colour: blue, size: "1", "a.b": x}}`)
	config["ignore_fields"] = values{"ConfigMap default/settings": []any{"data.colour", `data["a.b"]`}}
	i := w.Instance("k8s_addon")
	i.Must(config)
	i.Converged(config)
	// Nobody else owns them yet: an apply keeps them.
	config["manifests"] = []any{`{apiVersion: v1, kind: ConfigMap, metadata: {name: settings, namespace: default}, data: {colour: blue, size: "2", "a.b": x}}`}
	i.Must(config)
	if got := w.value(settings, "data"); got != `{"a.b":"x","colour":"blue","size":"2"}` {
		w.t.Errorf("data is %s", got)
	}
	w.writes("painter", settings, `{"data":{"colour":"red","a.b":null}}`)
	i.Converged(config)
	config["manifests"] = []any{`{apiVersion: v1, kind: ConfigMap, metadata: {name: settings, namespace: default}, data: {colour: blue, size: "3", "a.b": x}}`}
	i.Must(config)
	i.Converged(config)
	if got := w.value(settings, "data"); got != `{"colour":"red","size":"3"}` {
		w.t.Errorf("data is %s", got)
	}
	// Without the argument it is drift again.
	delete(config, "ignore_fields")
	i.Must(config)
	i.Converged(config)
	if got := w.value(settings, "data", "colour"); got != `"blue"` {
		w.t.Errorf("colour is %s", got)
	}
}

// conflicts: a field that another manager applies is a conflict, in Kubernetes' words.
func (w world) conflicts() {
	const path = "/api/v1/namespaces/default/configmaps/contested"
	const theirs = `{apiVersion: v1, kind: ConfigMap, metadata: {name: contested, namespace: default}, data: {colour: red}}`
	config := w.addon("contested", strings.Replace(theirs, "red", "blue", 1))
	i := w.Instance("k8s_addon")
	i.Must(config)
	w.as("gitops", path, theirs)
	i.Refresh()
	if drift := fmt.Sprint(i.Get("drift")); !strings.Contains(drift, `data.colour: found "red", wanted "blue": conflict with "gitops", which applies this field too`) {
		w.t.Errorf("the drift is %s", drift)
	}
	said := i.CarryOut(i.Plan(config)).Failure()
	for _, want := range []string{`Apply failed with 1 conflict: conflict with "gitops": .data.colour`, `ignore_fields = { "ConfigMap default/contested" = ["data.colour"] }`, "force_conflicts"} {
		if !strings.Contains(said, want) {
			w.t.Errorf("the apply says %q, without %q", said, want)
		}
	}
	ignoring := providertest.With(config, values{"ignore_fields": values{"ConfigMap": []any{".data.colour"}}})
	i.Must(ignoring)
	i.Converged(ignoring)
	config["force_conflicts"] = true
	i.Must(config)
	i.Converged(config)
	if got := w.value(path, "data", "colour"); got != `"blue"` {
		w.t.Errorf("colour is %s", got)
	}
}

// replaced: an object that cannot change is replaced when the plan says so, and nothing else is.
func (w world) replaced() {
	const manifest = `{apiVersion: apps/v1, kind: Deployment, metadata: {name: old, namespace: default}, spec: {replicas: 0, selector: {matchLabels: {app: A}}, template: {metadata: {labels: {app: A}}, spec: {containers: [{name: c, image: "example.com/c:1"}]}}}}`
	const binding = `{apiVersion: rbac.authorization.k8s.io/v1, kind: ClusterRoleBinding, metadata: {name: old}, roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: ROLE}}`
	const path, bindingPath = "/apis/apps/v1/namespaces/default/deployments/old", "/apis/rbac.authorization.k8s.io/v1/clusterrolebindings/old"
	view := strings.Replace(binding, "ROLE", "view", 1)
	config := w.addon("replaced", strings.ReplaceAll(manifest, "A", "a"), view)
	i := w.Instance("k8s_addon")
	i.Must(config)
	i.Converged(config)
	before, kept := w.value(path, "metadata", "uid"), w.value(bindingPath, "metadata", "uid")

	// In a manifest.
	config["manifests"] = []any{strings.ReplaceAll(manifest, "A", "b"), view}
	plan := i.Plan(config)
	if got := i.Differences(plan); !strings.Contains(got, "spec.selector cannot be changed: the object is deleted and created again") {
		w.t.Errorf("the plan says %s", got)
	}
	w.Fatal(i.Apply(plan))
	i.Converged(config)
	if now := w.value(path, "metadata", "uid"); now == before || now == "" || w.value(bindingPath, "metadata", "uid") != kept {
		w.t.Errorf("the Deployment was %s and is %s; the binding is %s", before, now, w.value(bindingPath, "metadata", "uid"))
	}

	// In the cluster: someone has made the object otherwise.
	ctx := w.context()
	w.must(w.kube.RbacV1().ClusterRoleBindings().Delete(ctx, "old", metav1.DeleteOptions{}))
	w.as("kubectl", bindingPath, strings.Replace(binding, "ROLE", "cluster-admin", 1))
	i.Refresh()
	plan = i.Plan(config)
	if got := i.Differences(plan); !strings.Contains(got, "roleRef cannot be changed") {
		w.t.Errorf("the plan says %s", got)
	}
	w.Fatal(i.Apply(plan))
	i.Converged(config)
	if got := w.value(bindingPath, "roleRef", "name"); got != `"view"` {
		w.t.Errorf("the role is %s", got)
	}

	// A plan that does not say so replaces nothing.
	config = w.addon("replaced", strings.ReplaceAll(manifest, "A", "c"))
	other := w.Instance("k8s_addon")
	said := other.CarryOut(other.Plan(config)).Failure()
	if !strings.Contains(said, "spec.selector of Deployment default/old cannot be changed") || !strings.Contains(said, "this plan did not say so") {
		w.t.Errorf("the apply says %q", said)
	}
}

// kept: with some objects data would be lost.
func (w world) kept() {
	const claim = `{apiVersion: v1, kind: PersistentVolumeClaim, metadata: {name: data, namespace: default}, spec: {accessModes: [ReadWriteOnce], storageClassName: a, resources: {requests: {storage: 1Gi}}}}`
	const set = `{apiVersion: apps/v1, kind: StatefulSet, metadata: {name: data, namespace: default}, spec: {replicas: 1, serviceName: a, selector: {matchLabels: {app: data}},
template: {metadata: {labels: {app: data}}, spec: {containers: [{name: c, image: "example.com/c:1"}]}}}}`
	config := w.addon("data", claim, set)
	i := w.Instance("k8s_addon")
	i.Must(config)
	i.Converged(config)
	config["manifests"] = []any{strings.Replace(claim, "storageClassName: a", "storageClassName: b", 1), set}
	if got := i.Plan(config).Failure(); !strings.HasPrefix(got, `"manifests"`) || !strings.Contains(got, "spec.storageClassName of PersistentVolumeClaim default/data cannot be changed") || !strings.Contains(got, "the volume and its data") {
		w.t.Errorf("the plan says %q", got)
	}
	// The pods of a StatefulSet stay while it is replaced.
	pods := w.kube.CoreV1().Pods("default")
	uid := func() types.UID {
		pod, err := pods.Get(w.context(), "data-0", metav1.GetOptions{})
		if err != nil {
			return ""
		}
		return pod.UID
	}
	w.eventually("there is a pod", func() bool { return uid() != "" })
	pod := uid()
	config["manifests"] = []any{claim, strings.Replace(set, "serviceName: a", "serviceName: b", 1)}
	i.Must(config)
	i.Converged(config)
	if got := uid(); got != pod || w.value("/apis/apps/v1/namespaces/default/statefulsets/data", "spec", "serviceName") != `"b"` {
		w.t.Errorf("the pod was %s and is %s", pod, got)
	}
	config["manifests"] = []any{set}
	if got := providertest.Warnings(i.Plan(config)); !strings.Contains(got, "PersistentVolumeClaim default/data is no longer listed") {
		w.t.Errorf("the plan warns %q", got)
	}
}
