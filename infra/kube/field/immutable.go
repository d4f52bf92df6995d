package field

import (
	"maps"
	"slices"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

// rules are what a kind's objects do not let change.
type rules struct {
	// fields cannot change.
	fields []string
	// except are the fields of spec that can change, where all others cannot.
	except []string
	// once are fields that cannot change to another value, but may be left out: they keep their value.
	once []string
	// loses is what is lost when an object is deleted. Such an object is never replaced.
	loses string
}

// immutable has the kinds of Kubernetes whose objects have fields that cannot be changed, by API
// group and kind. Custom resources are not here: it is not known what their deletion would lose.
var immutable = map[string]rules{
	"batch/Job": {fields: []string{"spec.template", "spec.selector", "spec.completionMode", "spec.podFailurePolicy",
		"spec.successPolicy", "spec.backoffLimitPerIndex", "spec.managedBy"}},
	"apps/Deployment": {fields: []string{"spec.selector"}},
	"apps/DaemonSet":  {fields: []string{"spec.selector"}},
	"apps/ReplicaSet": {fields: []string{"spec.selector"}},
	"apps/StatefulSet": {except: []string{"replicas", "ordinals", "template", "updateStrategy", "revisionHistoryLimit",
		"persistentVolumeClaimRetentionPolicy", "minReadySeconds"}},
	"/Service":                              {once: []string{"spec.clusterIP", "spec.clusterIPs", "spec.ipFamilies[0]", "spec.loadBalancerClass"}},
	"/Secret":                               {fields: []string{"type"}},
	"/ConfigMap":                            {},
	"rbac.authorization.k8s.io/RoleBinding": {fields: []string{"roleRef"}},
	"rbac.authorization.k8s.io/ClusterRoleBinding": {fields: []string{"roleRef"}},
	"storage.k8s.io/StorageClass":                  {fields: []string{"provisioner", "parameters", "reclaimPolicy", "volumeBindingMode"}},
	"storage.k8s.io/CSIDriver":                     {fields: []string{"spec.attachRequired", "spec.volumeLifecycleModes"}},
	"scheduling.k8s.io/PriorityClass":              {fields: []string{"value", "preemptionPolicy"}},
	"networking.k8s.io/IngressClass":               {fields: []string{"spec.controller"}},
	"node.k8s.io/RuntimeClass":                     {fields: []string{"handler"}},
	"discovery.k8s.io/EndpointSlice":               {fields: []string{"addressType"}},
	"/PersistentVolumeClaim":                       {except: []string{"resources", "volumeAttributesClassName"}, loses: "the volume and its data"},
	"/PersistentVolume": {fields: []string{"spec.csi", "spec.hostPath", "spec.local", "spec.nfs", "spec.iscsi", "spec.fc", "spec.volumeMode"},
		loses: "the volume and its data"},
	"apiextensions.k8s.io/CustomResourceDefinition": {fields: []string{"spec.group", "spec.scope"}, loses: "every object of its kind"},
	"/Namespace": {loses: "every object in it"},
}

func rulesOf(o *unstructured.Unstructured) (rules, bool) {
	r, known := immutable[o.GroupVersionKind().Group+"/"+o.GetKind()]
	return r, known
}

// Changed returns the fields that differ between two manifests of an object and that cannot be
// changed in place, sorted.
func Changed(before, after *unstructured.Unstructured) []string {
	return compare(before, after, func(b, a any) bool { return same(b, a) })
}

// Otherwise returns the fields in which a live object differs from what is wanted and that cannot
// be changed in place, sorted. Fields that the manifest does not have do not count.
func Otherwise(live, wanted *unstructured.Unstructured) []string {
	return compare(live, wanted, func(l, w any) bool { return w == nil || within(w, l) })
}

func compare(before, after *unstructured.Unstructured, equal func(before, after any) bool) []string {
	r, known := rulesOf(after)
	if !known {
		return nil
	}
	fields := slices.Clone(r.fields)
	if r.except != nil {
		b, _, _ := unstructured.NestedMap(before.Object, "spec")
		a, _, _ := unstructured.NestedMap(after.Object, "spec")
		for _, k := range slices.Concat(slices.Collect(maps.Keys(b)), slices.Collect(maps.Keys(a))) {
			if !slices.Contains(r.except, k) {
				fields = append(fields, "spec."+k)
			}
		}
	}
	if before.Object["immutable"] == true { // a ConfigMap or a Secret
		fields = append(fields, "immutable", "data", "binaryData", "stringData")
	}
	if after.GetKind() == "Job" && value(after, "spec.completionMode") != "Indexed" {
		fields = append(fields, "spec.completions")
	}
	var out []string
	for _, f := range fields {
		if !equal(value(before, f), value(after, f)) {
			out = append(out, f)
		}
	}
	for _, f := range r.once {
		if a := value(after, f); a != nil && a != "" && !same(value(before, f), a) &&
			value(before, "spec.type") != "ExternalName" && value(after, "spec.type") != "ExternalName" {
			out = append(out, f)
		}
	}
	slices.Sort(out)
	return slices.Compact(out)
}

// value returns the value of a field; nil if there is none.
func value(o *unstructured.Unstructured, path string) any {
	p, _ := ParsePath(path)
	for _, at := range p.places(o.Object) {
		return at.get(o.Object)
	}
	return nil
}

// within reports whether a live value has all that is wanted. It may have more: defaults.
func within(wanted, live any) bool {
	switch w := wanted.(type) {
	case map[string]any:
		l, ok := live.(map[string]any)
		for k, v := range w {
			if ok = ok && within(v, l[k]); !ok {
				return false
			}
		}
		return ok
	case []any:
		l, ok := live.([]any)
		if !ok || len(l) != len(w) {
			return false
		}
		for i := range w {
			if !within(w[i], l[i]) {
				return false
			}
		}
		return true
	}
	return same(wanted, live)
}

// Loses returns what is lost when an object is deleted; empty if that is nothing but the object, and
// what its controller made of it. The live object is nil if it is not known.
func Loses(wanted, live *unstructured.Unstructured) string {
	if r, _ := rulesOf(wanted); r.loses != "" {
		return r.loses
	}
	const whenDeleted = "spec.persistentVolumeClaimRetentionPolicy.whenDeleted"
	for _, o := range []*unstructured.Unstructured{wanted, live} {
		if o != nil && o.GetKind() == "StatefulSet" && value(o, whenDeleted) == "Delete" {
			return "the volumes of its pods and their data"
		}
	}
	return ""
}

// KeepsPods reports whether the pods of an object can stay when it is replaced: the new one selects
// them as well, and takes them over.
func KeepsPods(live, wanted *unstructured.Unstructured) bool {
	return wanted.GetKind() == "StatefulSet" && within(value(wanted, "spec.selector"), value(live, "spec.selector"))
}
