package field

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

// Ignored are the fields of objects that are left to others. A key names one object, as drift does
// ("Deployment web/shop"), or every object of a kind ("Deployment").
type Ignored map[string][]Path

// Of returns the fields of one object.
func (i Ignored) Of(o *unstructured.Unstructured) []Path {
	return slices.Concat(i[o.GetKind()], i[NameOf(o)])
}

// NameOf returns an object's name for people: "Deployment kube-system/coredns".
func NameOf(o *unstructured.Unstructured) string {
	if o.GetNamespace() == "" {
		return o.GetKind() + " " + o.GetName()
	}
	return o.GetKind() + " " + o.GetNamespace() + "/" + o.GetName()
}

// identity are the fields that identify an object.
var identity = []string{"apiVersion", "kind", "metadata", "metadata.name", "metadata.namespace"}

// ErrNoObject is the error of a key that names none of the objects.
var ErrNoObject = errors.New("names no object of the addon")

// Check checks one path of a key against the objects. An error says what is wrong with it.
func Check(key, text string, objects []*unstructured.Unstructured) (Path, error) {
	p, err := ParsePath(text)
	if err != nil {
		return nil, err
	}
	if slices.Contains(identity, p.String()) {
		return nil, fmt.Errorf("%s identifies the object: it cannot be ignored", p)
	}
	named := false
	for _, o := range objects {
		if key == o.GetKind() || key == NameOf(o) {
			named = true
			if p.In(o.Object) {
				return p, nil
			}
		}
	}
	if !named {
		return p, ErrNoObject
	}
	if strings.Contains(key, " ") {
		return p, fmt.Errorf("the manifest of %s has no field %s; fields that a manifest does not have are ignored anyway", key, p)
	}
	return p, fmt.Errorf("no manifest of a %s has a field %s; fields that a manifest does not have are ignored anyway", key, p)
}
