package field

import (
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/structured-merge-diff/v6/fieldpath"
)

// controllers are the field managers of Kubernetes' own controllers. They write fields of objects
// that others apply only where it is their task: a HorizontalPodAutoscaler's replicas, the rules of
// an aggregated ClusterRole. The controllers of others have any name, so nobody can know them.
var controllers = []string{"kube-controller-manager", "cloud-controller-manager", "clusterrole-aggregation-controller", "kube-scheduler", "kubelet"}

// Owner is a field manager with the fields of one object that it owns.
type Owner struct {
	Manager string
	// Applies is set if the manager owns the fields by server-side apply, so that it wants their
	// values. Others have only written them.
	Applies bool

	fields, leaves []Path
	names          []string // of fields, as Kubernetes writes them
}

// Owners returns the owners of fields of an object, without what the manager own applies.
func Owners(live *unstructured.Unstructured, own string) []Owner {
	var out []Owner
	for _, entry := range live.GetManagedFields() {
		set := &fieldpath.Set{}
		applies := entry.Operation == metav1.ManagedFieldsOperationApply
		if applies && entry.Manager == own || entry.FieldsV1 == nil || set.FromJSON(entry.FieldsV1.GetRawReader()) != nil {
			continue
		}
		o := Owner{Manager: entry.Manager, Applies: applies}
		set.Iterate(func(p fieldpath.Path) {
			o.fields, o.names = append(o.fields, stepsOf(p)), append(o.names, p.String())
		})
		set.Leaves().Iterate(func(p fieldpath.Path) { o.leaves = append(o.leaves, stepsOf(p)) })
		out = append(out, o)
	}
	return out
}

// Has reports whether the manager owns a field, as Kubernetes writes it in a conflict.
func (o Owner) Has(conflict string) bool { return slices.Contains(o.names, conflict) }

// Holder returns the owner of the fields at a path of a live object; nil if they have none. Of
// several owners, one that applies the field comes first.
func Holder(owners []Owner, live *unstructured.Unstructured, p Path) *Owner {
	for _, at := range p.places(live.Object) {
		var found *Owner
		for _, o := range owners {
			if (found == nil || o.Applies) && (o.holds(live.Object, at) || o.holdsWhole(live.Object, at)) {
				found = &o
			}
		}
		if found != nil {
			return found
		}
	}
	return nil
}

// holds reports whether the manager owns a field, or a part of it.
func (o Owner) holds(live map[string]any, at place) bool {
	return slices.ContainsFunc(o.fields, func(p Path) bool { return len(p) >= len(at) && p[:len(at)].leads(live, at) })
}

// holdsWhole reports whether the manager owns something that has the field and that can only be
// owned as a whole.
func (o Owner) holdsWhole(live map[string]any, at place) bool {
	return slices.ContainsFunc(o.leaves, func(p Path) bool { return len(p) < len(at) && p.leads(live, at) })
}

// leads reports whether a path of managedFields leads along a place.
func (p Path) leads(live map[string]any, at place) bool {
	for i, s := range p {
		switch k := at[i].(type) {
		case string:
			if s.key != k {
				return false
			}
		case int:
			if s.key != "" || !s.selects(at[:i+1].get(live), k) {
				return false
			}
		}
	}
	return true
}

// stepsOf converts a path of managedFields.
func stepsOf(p fieldpath.Path) Path {
	out := make(Path, len(p))
	for i, e := range p {
		switch {
		case e.FieldName != nil:
			out[i].key = *e.FieldName
		case e.Key != nil:
			out[i].keys = map[string]any{}
			for _, f := range *e.Key {
				out[i].keys[f.Name] = f.Value.Unstructured()
			}
		case e.Value != nil:
			out[i].value = (*e.Value).Unstructured()
		case e.Index != nil:
			out[i].index = *e.Index
		}
	}
	return out
}

// Left returns what to apply of a wanted object so that the fields that belong to others stay as
// they are in the live one: those that are ignored, and those in which a controller of Kubernetes
// wants another value. own is the manager that applies.
//
// A field that another manager owns is left out, and so given up. A field that nobody else owns
// would then be removed, so it is applied as it is found.
func Left(wanted, live *unstructured.Unstructured, own string, ignored []Path) *unstructured.Unstructured {
	out := wanted.DeepCopy()
	owners := Owners(live, own)
	for _, p := range slices.Concat(ignored, placeholders(wanted)) {
		for _, at := range p.places(out.Object) {
			there := at.of(out.Object).places(live.Object)
			switch {
			case len(there) == 0, slices.ContainsFunc(owners, func(o Owner) bool { return o.holds(live.Object, there[0]) }):
				at.remove(out.Object)
			default:
				at.set(out.Object, there[0].get(live.Object))
			}
		}
	}
	for _, o := range owners {
		if !slices.Contains(controllers, o.Manager) {
			continue
		}
		for _, path := range o.leaves {
			for _, at := range path.places(out.Object) {
				there := path.places(live.Object)
				if len(there) > 0 && !same(at.get(out.Object), there[0].get(live.Object)) {
					at.remove(out.Object)
				}
			}
		}
	}
	return out
}

// placeholders are the fields for which a manifest may have an empty value, because a controller
// fills them.
func placeholders(wanted *unstructured.Unstructured) []Path {
	var paths []string
	switch wanted.GetKind() {
	case "ClusterRole":
		// "If AggregationRule is set, then the Rules are controller managed."
		if wanted.Object["aggregationRule"] != nil {
			return []Path{{step{key: "rules"}}}
		}
	case "MutatingWebhookConfiguration", "ValidatingWebhookConfiguration":
		paths = []string{"webhooks[*].clientConfig.caBundle"}
	case "CustomResourceDefinition":
		paths = []string{"spec.conversion.webhook.clientConfig.caBundle"}
	case "APIService":
		paths = []string{"spec.caBundle"}
	}
	var out []Path
	for _, text := range paths {
		p, _ := ParsePath(text)
		for _, at := range p.places(wanted.Object) {
			// "Cg==" is a line break, which generators write where a value is required.
			if v := at.get(wanted.Object); v == nil || v == "" || v == "Cg==" {
				out = append(out, at.of(wanted.Object))
			}
		}
	}
	return out
}
