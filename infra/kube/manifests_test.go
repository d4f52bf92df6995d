package kube

import (
	"fmt"
	"slices"
	"strings"
	"testing"
)

func TestReadManifests(t *testing.T) {
	const object = "{apiVersion: v1, kind: ConfigMap, metadata: {name: a}}"
	texts := func(texts ...string) []Manifests { return []Manifests{{Field: "manifests", Texts: texts}} }
	for _, tt := range []struct {
		name  string
		given []Manifests
		count int
		want  []string // part of each error
	}{
		{"nothing", nil, 0, nil},
		{"two documents", texts("# none\n---\n" + object + "\n---\n" + strings.Replace(object, "a}", "b}", 1)), 2, nil},
		{"a list", texts("{apiVersion: v1, kind: List, items: [" + object + "]}"), 1, nil},
		{"another namespace", texts(object, strings.Replace(object, "a}", "a, namespace: x}", 1)), 2, nil},
		{"broken", texts(object, "kind: ["), 1, []string{"manifests[1]|Unusable manifest|document 1: "}},
		{"no name", texts("{apiVersion: v1, kind: ConfigMap}"), 0, []string{"manifests[0]|Unusable manifest|document 1: apiVersion, kind and metadata.name are required"}},
		{"no name in a list", texts("{apiVersion: v1, kind: List, items: [{kind: ConfigMap}]}"), 0, []string{"apiVersion, kind and metadata.name are required"}},
		{"twice", texts(object, strings.Replace(object, "a}", "a, namespace: default}", 1)), 1,
			[]string{"manifests[1]|Object given twice|ConfigMap default/a is given twice, in manifests[0] and in manifests[1]: leave one."}},
		{"twice in one text", texts(object + "\n---\n" + object), 1, []string{"ConfigMap a is given twice"}},
		{"twice in two lists", append(texts(object), Manifests{"sensitive_manifests", []string{object}, true}), 1, []string{"in manifests[0] and in sensitive_manifests[0]"}},
		{"a secret that is broken", []Manifests{{"sensitive_manifests", []string{"password: [hunter2"}, true}}, 0, []string{"not shown, since it is sensitive"}},
	} {
		lists, errs := ReadManifests(tt.given...)
		if got := len(slices.Concat(lists...)); got != tt.count {
			t.Errorf("%s: %d objects, wanted %d", tt.name, got, tt.count)
		}
		var words []string
		for _, e := range errs {
			words = append(words, fmt.Sprintf("%s|%s|%s", e.Field, e.Problem, e.Err))
		}
		if len(words) != len(tt.want) {
			t.Errorf("%s: %q", tt.name, words)
			continue
		}
		for i, w := range tt.want {
			if !strings.Contains(words[i], w) || strings.Contains(words[i], "hunter2") {
				t.Errorf("%s: %q, wanted %q", tt.name, words[i], w)
			}
		}
	}
}
