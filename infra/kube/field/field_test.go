package field

import (
	"slices"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/yaml"
)

func object(t *testing.T, manifest string) *unstructured.Unstructured {
	t.Helper()
	o := &unstructured.Unstructured{}
	if err := yaml.Unmarshal([]byte(manifest), &o.Object); err != nil {
		t.Fatal(err)
	}
	return o
}

func TestPaths(t *testing.T) {
	o := object(t, `{spec: {replicas: 1, containers: [{name: web, image: a, ports: [{port: 80}, {port: 443, protocol: UDP}]}, {name: log, image: b}]},
metadata: {annotations: {example.com/note: x, plain: z}, finalizers: [a.b/c, d]}}`)
	for text, want := range map[string]string{ // the path as it is written, and how many fields it finds
		"spec.replicas":                                       "spec.replicas 1",
		".spec.replicas":                                      "spec.replicas 1",
		"spec.containers[log].image":                          "spec.containers[log].image 1",
		`.spec.containers[name="log"].image`:                  "spec.containers[log].image 1",
		"spec.containers[*].image":                            "spec.containers[*].image 2",
		"spec.containers[1].image":                            "spec.containers[1].image 1",
		"spec.containers[7].image":                            "spec.containers[7].image 0",
		`spec.containers[web].ports[port=443,protocol="UDP"]`: `spec.containers[web].ports[port=443,protocol="UDP"] 1`,
		`spec.containers[web].ports[port=80,protocol="TCP"]`:  `spec.containers[web].ports[port=80,protocol="TCP"] 1`,
		`metadata.annotations["example.com/note"]`:            `metadata.annotations["example.com/note"] 1`,
		".metadata.annotations.example.com/note":              `metadata.annotations.example["com/note"] 1`,
		`metadata.finalizers[="a.b/c"]`:                       `metadata.finalizers[="a.b/c"] 1`,
		"metadata.annotations.other":                          "metadata.annotations.other 0",
	} {
		p, err := ParsePath(text)
		if err != nil {
			t.Error(err)
			continue
		}
		if got := p.String() + " " + string(rune('0'+len(p.places(o.Object)))); got != want {
			t.Errorf("%s: %s, wanted %s", text, got, want)
		}
	}
	for _, text := range []string{"", ".", "spec.", "spec..replicas", "spec[", "spec[]", "spec[a", `spec["a`, `spec["a"`, "spec[a=]", "spec[a=1", "spec[=", "spec]", "spec replicas", "[*]x", "/spec/*", `spec["a"]b`} {
		if p, err := ParsePath(text); err == nil {
			t.Errorf("%q is taken for %s", text, p)
		}
	}
}

// owned returns managedFields with one manager.
func owned(manager, operation, fields string) string {
	return `{manager: ` + manager + `, operation: ` + operation + `, apiVersion: v1, fieldsType: FieldsV1, fieldsV1: ` + fields + `}`
}

func TestLeft(t *testing.T) {
	const replicas = `{"f:spec": {"f:replicas": {}}}`
	for _, tt := range []struct {
		name, wanted, live, owners string
		ignored                    []string
		want                       string
	}{
		{"a controller's", "{spec: {replicas: 1, paused: true}}", "{spec: {replicas: 3}}", owned("kube-controller-manager", "Update", replicas), nil, "{spec: {paused: true}}"},
		{"a person's", "{spec: {replicas: 1}}", "{spec: {replicas: 3}}", owned("kubectl-edit", "Update", replicas), nil, "{spec: {replicas: 1}}"},
		{"a controller's, with the same value", "{spec: {replicas: 3}}", "{spec: {replicas: 3}}", owned("kube-controller-manager", "Update", replicas), nil, "{spec: {replicas: 3}}"},
		{"ignored, another manager's", "{spec: {replicas: 1}}", "{spec: {replicas: 3}}", owned("kubectl-edit", "Update", replicas), []string{"spec.replicas"}, "{spec: {}}"},
		{"ignored, ours", "{spec: {replicas: 1}}", "{spec: {replicas: 3}}", owned("us", "Apply", replicas), []string{"spec.replicas"}, "{spec: {replicas: 3}}"},
		{"ignored, nobody has it", "{spec: {replicas: 1, a: 2}}", "{spec: {}}", owned("us", "Apply", "{}"), []string{"spec.replicas"}, "{spec: {a: 2}}"},
		{"ignored in a list that has one owner", "{rules: [{a: 1, b: 2}]}", "{rules: [{a: 5, b: 6}]}", owned("other", "Update", `{"f:rules": {}}`), []string{"rules[*].a"}, "{rules: [{a: 5, b: 2}]}"},
		{"ignored elements", "{l: [{name: a, v: 1}, {name: b, v: 1}]}", "{l: [{name: b, v: 2}, {name: a, v: 3}]}",
			owned("other", "Apply", `{"f:l": {"k:{\"name\":\"a\"}": {".": {}, "f:name": {}, "f:v": {}}}}`), []string{"l[*].v"}, "{l: [{name: a}, {name: b, v: 2}]}"},
		{"an aggregated role", "{kind: ClusterRole, aggregationRule: {a: 1}, rules: []}", "{kind: ClusterRole, rules: [{verbs: [get]}]}", owned("any", "Apply", `{"f:rules": {}}`), nil, "{kind: ClusterRole, aggregationRule: {a: 1}}"},
		{"another role", "{kind: ClusterRole, rules: []}", "{kind: ClusterRole, rules: [{verbs: [get]}]}", owned("any", "Apply", `{"f:rules": {}}`), nil, "{kind: ClusterRole, rules: []}"},
		{"a placeholder", "{kind: APIService, spec: {caBundle: '', group: a}}", "{kind: APIService, spec: {caBundle: eA==}}", owned("any", "Update", `{"f:spec": {"f:caBundle": {}}}`), nil, "{kind: APIService, spec: {group: a}}"},
		{"no placeholder", "{kind: APIService, spec: {caBundle: eQ==}}", "{kind: APIService, spec: {caBundle: eA==}}", owned("any", "Update", `{"f:spec": {"f:caBundle": {}}}`), nil, "{kind: APIService, spec: {caBundle: eQ==}}"},
	} {
		live := object(t, tt.live)
		live.Object["metadata"] = object(t, "{managedFields: ["+tt.owners+"]}").Object
		var ignored []Path
		for _, text := range tt.ignored {
			p, err := ParsePath(text)
			if err != nil {
				t.Fatal(err)
			}
			ignored = append(ignored, p)
		}
		wanted := object(t, tt.wanted)
		if got, want := JSON(Left(wanted, live, "us", ignored).Object), JSON(object(t, tt.want).Object); got != want {
			t.Errorf("%s: %s, wanted %s", tt.name, got, want)
		}
		if JSON(wanted.Object) != JSON(object(t, tt.wanted).Object) {
			t.Errorf("%s: the wanted object has changed", tt.name)
		}
	}
}

func TestCheck(t *testing.T) {
	objects := []*unstructured.Unstructured{object(t, "{apiVersion: apps/v1, kind: Deployment, metadata: {name: shop, namespace: web}, spec: {replicas: 1}}")}
	for _, tt := range []struct{ key, path, want string }{
		{"Deployment web/shop", "spec.replicas", ""},
		{"Deployment", "spec.replicas", ""},
		{"Deployment shop", "spec.replicas", "names no object"},
		{"Deployment web/shop", "spec.replica", "the manifest of Deployment web/shop has no field spec.replica"},
		{"Deployment", "spec.replica", "no manifest of a Deployment has a field spec.replica"},
		{"Deployment", "metadata.name", "it cannot be ignored"},
		{"Deployment", "spec[", "is not the path of a field"},
	} {
		_, err := Check(tt.key, tt.path, objects)
		if err == nil && tt.want != "" || err != nil && (tt.want == "" || !strings.Contains(err.Error(), tt.want)) {
			t.Errorf("%s, %s: %v, wanted %q", tt.key, tt.path, err, tt.want)
		}
	}
}

func TestImmutable(t *testing.T) {
	for _, tt := range []struct{ before, after, want string }{
		{"{apiVersion: batch/v1, kind: Job, spec: {template: {a: 1}, suspend: true}}", "{apiVersion: batch/v1, kind: Job, spec: {template: {a: 2}}}", "spec.template"},
		{"{apiVersion: batch/v1, kind: Job, spec: {ttlSecondsAfterFinished: 1}}", "{apiVersion: batch/v1, kind: Job, spec: {ttlSecondsAfterFinished: 2}}", ""},
		{"{apiVersion: apps/v1, kind: Deployment, spec: {selector: {a: 1}}}", "{apiVersion: apps/v1, kind: Deployment, spec: {selector: {a: 2}}}", "spec.selector"},
		{"{apiVersion: apps/v1, kind: StatefulSet, spec: {serviceName: a, replicas: 1}}", "{apiVersion: apps/v1, kind: StatefulSet, spec: {serviceName: b, replicas: 2, template: {}}}", "spec.serviceName"},
		{"{apiVersion: v1, kind: Service, spec: {clusterIP: 10.0.0.1}}", "{apiVersion: v1, kind: Service, spec: {clusterIP: 10.0.0.2}}", "spec.clusterIP"},
		{"{apiVersion: v1, kind: Service, spec: {clusterIP: 10.0.0.1}}", "{apiVersion: v1, kind: Service, spec: {}}", ""},
		{"{apiVersion: v1, kind: Service, spec: {}}", "{apiVersion: v1, kind: Service, spec: {clusterIP: 10.0.0.2}}", "spec.clusterIP"},
		{"{apiVersion: v1, kind: ConfigMap, immutable: true, data: {a: b}}", "{apiVersion: v1, kind: ConfigMap, immutable: true, data: {a: c}}", "data"},
		{"{apiVersion: v1, kind: ConfigMap, data: {a: b}}", "{apiVersion: v1, kind: ConfigMap, data: {a: c}}", ""},
		{"{apiVersion: v1, kind: PersistentVolumeClaim, spec: {storageClassName: a, resources: {a: 1}}}", "{apiVersion: v1, kind: PersistentVolumeClaim, spec: {storageClassName: b, resources: {a: 2}}}", "spec.storageClassName"},
		{"{apiVersion: example.com/v1, kind: Job, spec: {template: {a: 1}}}", "{apiVersion: example.com/v1, kind: Job, spec: {template: {a: 2}}}", ""},
	} {
		if got := strings.Join(Changed(object(t, tt.before), object(t, tt.after)), " "); got != tt.want {
			t.Errorf("%s\n%s: %q, wanted %q", tt.before, tt.after, got, tt.want)
		}
	}
	live := object(t, "{apiVersion: apps/v1, kind: Deployment, spec: {selector: {matchLabels: {a: x}}}}")
	if got := Otherwise(live, object(t, "{apiVersion: apps/v1, kind: Deployment, spec: {replicas: 1}}")); len(got) > 0 {
		t.Errorf("what is not wanted differs: %q", got)
	}
	if got := Otherwise(live, object(t, "{apiVersion: apps/v1, kind: Deployment, spec: {selector: {matchLabels: {a: z}}}}")); !slices.Equal(got, []string{"spec.selector"}) {
		t.Errorf("differing: %q", got)
	}
	for manifest, want := range map[string]string{
		"{apiVersion: v1, kind: Namespace}": "every object in it", "{apiVersion: batch/v1, kind: Job}": "", "{apiVersion: example.com/v1, kind: Namespace}": "",
		"{apiVersion: apps/v1, kind: StatefulSet, spec: {persistentVolumeClaimRetentionPolicy: {whenDeleted: Delete}}}": "the volumes of its pods and their data",
	} {
		if got := Loses(object(t, manifest), nil); got != want {
			t.Errorf("%s loses %q, wanted %q", manifest, got, want)
		}
	}
}
