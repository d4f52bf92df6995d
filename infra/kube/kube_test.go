package kube

import (
	"slices"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/yaml"

	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/finding"
)

func object(t *testing.T, manifest string) *unstructured.Unstructured {
	t.Helper()
	o := &unstructured.Unstructured{}
	if err := yaml.Unmarshal([]byte(manifest), &o.Object); err != nil {
		t.Fatal(err)
	}
	return o
}

func TestDifferences(t *testing.T) {
	for _, tt := range []struct {
		name          string
		live, applied string
		want          []string
	}{
		{"the same but for bookkeeping",
			"{kind: A, metadata: {resourceVersion: '1', generation: 1, uid: x, managedFields: [{a: 1}]}, status: {a: 1}}",
			"{kind: A, metadata: {resourceVersion: '2', generation: 2, uid: x}, status: {}}", nil},
		{"scalars", "{kind: A, a: 1, b: x, c: true}", "{kind: A, a: 2, b: z, c: false}",
			[]string{"a: found 1, wanted 2", `b: found "x", wanted "z"`, "c: found true, wanted false"}},
		{"added and removed", "{kind: A, x: {a: 1}}", "{kind: A, x: {b: 2}}",
			[]string{"x.a: found 1, wanted nothing", "x.b: found nothing, wanted 2"}},
		{"keys with dots", "{kind: A, m: {example.com/a: x}}", "{kind: A, m: {example.com/a: z}}",
			[]string{`m["example.com/a"]: found "x", wanted "z"`}},
		{"lists by name", "{kind: A, l: [{name: a, v: 1}, {name: b, v: 2}]}", "{kind: A, l: [{name: a, v: 1}, {name: b, v: 3}, {name: c}]}",
			[]string{"l[b].v: found 2, wanted 3", "l[c]: found nothing, wanted {\"name\":\"c\"}"}},
		{"order", "{kind: A, l: [{name: b}, {name: a}]}", "{kind: A, l: [{name: a}, {name: b}]}", []string{"l: order is b, a, wanted a, b"}},
		{"lists by position", "{kind: A, l: [1, 2]}", "{kind: A, l: [1, 3, 4]}", []string{"l[1]: found 2, wanted 3", "l[2]: found nothing, wanted 4"}},
		{"another type", "{kind: A, a: {b: 1}}", "{kind: A, a: x}", []string{`a: found {"b":1}, wanted "x"`}},
		{"whole lists", "{kind: A, rules: [{verbs: [get], resources: [a<b]}]}", "{kind: A}", []string{`rules: found [{"resources":["a<b"],"verbs":["get"]}], wanted nothing`}},
		{"long values", "{kind: A, a: x}", "{kind: A, a: x123456789012345678901234567890123456789012345678901234567890123456789}",
			[]string{`a: found "x", wanted "x1234567890123456789012345678901234567890123456789012345678...`}},
		{"secrets", "{kind: Secret, type: a, data: {p: eA==}, metadata: {labels: {l: x}}}", "{kind: Secret, type: a, data: {p: eQ==}, metadata: {labels: {l: z}}}",
			[]string{"data.p: found a value (hidden), wanted a value (hidden)", `metadata.labels.l: found "x", wanted "z"`}},
		{"a whole secret", "{kind: Secret}", "{kind: Secret, data: {p: eQ==}}", []string{"data: found nothing, wanted a value (hidden)"}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			got, want := finding.Words(differences(object(t, tt.live), object(t, tt.applied), false)), strings.Join(tt.want, "; ")
			if got != want {
				t.Errorf("\n got %q\nwant %q", got, want)
			}
		})
	}
}

func TestFailingChecks(t *testing.T) {
	body := "[+]ping ok\n[-]etcd failed: reason withheld\n[+]log ok\n[-]poststarthook/rbac/bootstrap-roles failed: not finished\nreadyz check failed\n"
	if got, want := failingChecks(body), []string{"etcd", "poststarthook/rbac/bootstrap-roles"}; !slices.Equal(got, want) {
		t.Errorf("failing = %q, wanted %q", got, want)
	}
	err := &NotReadyError{Endpoint: "https://x:6443", Failing: []string{"etcd", "ping"}}
	if got, want := err.Error(), "API server https://x:6443 is not ready: failing checks: etcd, ping"; got != want {
		t.Errorf("%q, wanted %q", got, want)
	}
}

func TestHolder(t *testing.T) {
	for identity, want := range map[string]string{"controller-0_6b9f_1": "controller-0", "plain": "plain", "": ""} {
		if got := holder(identity); got != want {
			t.Errorf("holder(%q) = %q, wanted %q", identity, got, want)
		}
	}
}

func TestWaves(t *testing.T) {
	kinds := []string{"ValidatingWebhookConfiguration", "Deployment", "Namespace", "ConfigMap", "CustomResourceDefinition", "ValidatingAdmissionPolicyBinding"}
	var objects []*unstructured.Unstructured
	for _, k := range kinds {
		objects = append(objects, object(t, "{kind: "+k+"}"))
	}
	var got []string
	for _, wave := range waves(objects) {
		for _, o := range wave {
			got = append(got, o.GetKind())
		}
		got = append(got, "|")
	}
	if want := []string{"Namespace", "CustomResourceDefinition", "ValidatingAdmissionPolicyBinding", "|", "Deployment", "ConfigMap", "|", "ValidatingWebhookConfiguration", "|"}; !slices.Equal(got, want) {
		t.Errorf("waves = %q", got)
	}
}

func TestUnmet(t *testing.T) {
	good := Node{Name: "a", Ready: true, InternalIP: "10.0.0.1", Version: "v1.36.4", BootID: "1"}
	want := NodeCondition{Name: "a", InternalIP: "10.0.0.1", Version: "v1.36.4", BootID: "1"}
	for words, change := range map[string]func(*Node){
		"": func(*Node) {},
		`a: internal address is "", wanted 10.0.0.1`:                func(n *Node) { n.InternalIP = "" },
		"a: kubelet reports v1.35.8, wanted v1.36.4":                func(n *Node) { n.Version = "v1.35.8" },
		"a: its kubelet has not reported since the machine started": func(n *Node) { n.BootID = "0" },
		"a: not ready: no network":                                  func(n *Node) { n.Ready, n.Reason = false, "no network" },
	} {
		found := good
		change(&found)
		got := ""
		if f := want.unmet(&found); f != nil {
			got = f.String()
		}
		if got != words {
			t.Errorf("%q, wanted %q", got, words)
		}
	}
	if got := want.unmet(nil); got == nil || got.String() != "a: not registered" {
		t.Errorf("without a node: %v", got)
	}
}

func TestLoaded(t *testing.T) {
	const encryption, authentication = "apiserver_encryption_config_controller_last_config_info", "apiserver_authentication_config_controller_last_config_info"
	for text, want := range map[string]Loaded{
		encryption + `{apiserver_id_hash="sha256:aa",hash="sha256:bb"} 1`:                       {Encryption: "bb"},
		encryption + `{hash="sha256:bb",apiserver_id_hash="sha256:aa"} 1`:                       {Encryption: "bb"},
		encryption + `{apiserver_id_hash="sha256:aa"} 1`:                                        {},
		"# TYPE " + encryption + " gauge":                                                       {},
		authentication + "{hash=\"sha256:cc\"} 1\nup 1\n" + encryption + `{hash="sha256:dd"} 1`: {Authentication: "cc", Encryption: "dd"},
	} {
		if got, err := loadedIn(strings.NewReader(text)); err != nil || got != want {
			t.Errorf("%s: %+v, %v; wanted %+v", text, got, err, want)
		}
	}
}
