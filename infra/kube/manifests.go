package kube

import (
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/util/yaml"

	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/invalid"
)

// Manifests are texts with Kubernetes objects and their field. Secret texts are not quoted in
// errors.
type Manifests struct {
	Field  string // "manifests"
	Texts  []string
	Secret bool
}

// ReadManifests returns the objects of each list of texts, and errors for texts that are broken,
// for objects that name no kind or have no name, and for objects that are given twice. Lists are
// flattened.
func ReadManifests(all ...Manifests) ([][]*unstructured.Unstructured, invalid.Fields) {
	var errs invalid.Fields
	type given struct {
		ref   ObjectRef
		field string
	}
	var seen []given
	out := make([][]*unstructured.Unstructured, len(all))
	for n, m := range all {
		for i, text := range m.Texts {
			field := fmt.Sprintf("%s[%d]", m.Field, i)
			objects, err := parseManifests(text, m.Secret)
			errs.Add(field, "Unusable manifest", err)
			for _, o := range objects {
				ref := RefOf(o)
				if first := slices.IndexFunc(seen, func(g given) bool { return g.ref.Same(ref) }); first >= 0 {
					errs.Say(field, "Object given twice", "%s is given twice, in %s and in %s: leave one.", ref, seen[first].field, field)
					continue
				}
				seen = append(seen, given{ref, field})
				out[n] = append(out[n], o)
			}
		}
	}
	return out, errs
}

// parseManifests reads the objects of one YAML or JSON text.
func parseManifests(text string, secret bool) ([]*unstructured.Unstructured, error) {
	var out []*unstructured.Unstructured
	decoder := yaml.NewYAMLOrJSONDecoder(strings.NewReader(text), 4096)
	for n := 1; ; n++ {
		var o unstructured.Unstructured
		err := decoder.Decode(&o.Object)
		switch {
		case errors.Is(err, io.EOF):
			return out, nil
		case err != nil && secret:
			return nil, fmt.Errorf("document %d is neither YAML nor JSON; what is wrong with it is not shown, since it is sensitive", n)
		case err != nil:
			return nil, fmt.Errorf("document %d: %w", n, err)
		case len(o.Object) == 0:
			continue
		}
		items := []*unstructured.Unstructured{&o}
		if o.IsList() {
			list, err := o.ToList()
			if err != nil {
				return nil, fmt.Errorf("document %d is not a list of objects", n)
			}
			items = nil
			for i := range list.Items {
				items = append(items, &list.Items[i])
			}
		}
		for _, item := range items {
			if item.GetKind() == "" || item.GetAPIVersion() == "" || item.GetName() == "" {
				return nil, fmt.Errorf("document %d: apiVersion, kind and metadata.name are required", n)
			}
		}
		out = append(out, items...)
	}
}
