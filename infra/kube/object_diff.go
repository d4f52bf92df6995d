package kube

import (
	"maps"
	"reflect"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/finding"
	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/kube/field"
)

// bookkeeping are the fields that the API server sets by itself.
var bookkeeping = [][]string{
	{"metadata", "managedFields"},
	{"metadata", "resourceVersion"},
	{"metadata", "generation"},
	{"metadata", "creationTimestamp"},
	{"metadata", "uid"},
	{"status"},
}

// differences compares the live object with what applying would make of it. It names the manager
// that has written what differs. It shows no values of a Secret. force is that of [Terms].
func differences(live, applied *unstructured.Unstructured, force bool) []finding.Finding {
	strip := func(o *unstructured.Unstructured) map[string]any {
		o = o.DeepCopy()
		for _, field := range bookkeeping {
			unstructured.RemoveNestedField(o.Object, field...)
		}
		return o.Object
	}
	d := differ{secret: live.GetKind() == "Secret", force: force, live: live, owners: field.Owners(live, fieldManager)}
	found, wanted := strip(live), strip(applied)
	for _, k := range keysOf(found, wanted) {
		d.metadata = k == "metadata"
		d.compare(field.Path(nil).Key(k), found[k], wanted[k])
	}
	return d.findings
}

type differ struct {
	secret   bool
	metadata bool // the fields being compared are metadata
	force    bool
	live     *unstructured.Unstructured
	owners   []field.Owner
	findings []finding.Finding
}

func (d *differ) add(path field.Path, problem finding.Problem, found, wanted string) {
	f := finding.Finding{Kind: finding.Field, Target: path.String(), Problem: problem, Found: found, Wanted: wanted}
	if o := field.Holder(d.owners, d.live, path); o != nil && problem == finding.Value {
		f.Manager = o.Manager
		if o.Applies && !d.force {
			f.Problem = finding.Taken
		}
	}
	d.findings = append(d.findings, f)
}

func (d *differ) compare(path field.Path, found, wanted any) {
	if reflect.DeepEqual(found, wanted) {
		return
	}
	switch w := wanted.(type) {
	case map[string]any:
		if f, ok := found.(map[string]any); ok {
			for _, k := range keysOf(f, w) {
				d.compare(path.Key(k), f[k], w[k])
			}
			return
		}
	case []any:
		if f, ok := found.([]any); ok {
			d.lists(path, f, w)
			return
		}
	}
	d.add(path, finding.Value, d.value(found), d.value(wanted))
}

// keysOf returns the keys of both maps, sorted.
func keysOf(a, b map[string]any) []string {
	keys := slices.AppendSeq(slices.Collect(maps.Keys(a)), maps.Keys(b))
	slices.Sort(keys)
	return slices.Compact(keys)
}

// lists pairs the elements by name when they have one, by position otherwise.
func (d *differ) lists(path field.Path, found, wanted []any) {
	f, fNames := byName(found)
	w, wNames := byName(wanted)
	if f != nil && w != nil {
		for _, name := range slices.Compact(slices.Sorted(slices.Values(append(fNames, wNames...)))) {
			d.compare(path.Named(name), f[name], w[name])
		}
		if slices.Equal(slices.Sorted(slices.Values(fNames)), slices.Sorted(slices.Values(wNames))) && !slices.Equal(fNames, wNames) {
			d.add(path, finding.Order, strings.Join(fNames, ", "), strings.Join(wNames, ", "))
		}
		return
	}
	for i := range max(len(found), len(wanted)) {
		d.compare(path.At(i), at(found, i), at(wanted, i))
	}
}

// byName indexes a list of maps by their distinct "name"; nil when it is not one.
func byName(list []any) (map[string]any, []string) {
	out := map[string]any{}
	var names []string
	for _, e := range list {
		m, ok := e.(map[string]any)
		if !ok {
			return nil, nil
		}
		name, ok := m["name"].(string)
		if _, twice := out[name]; !ok || twice {
			return nil, nil
		}
		out[name] = m
		names = append(names, name)
	}
	return out, names
}

func at(list []any, i int) any {
	if i < len(list) {
		return list[i]
	}
	return nil
}

// value writes a field's value as JSON; empty for a field that is not there.
func (d *differ) value(v any) string {
	switch v.(type) {
	case nil:
		return ""
	case map[string]any, []any:
		if d.secret {
			return finding.Hidden
		}
	case string:
		if d.secret && !d.metadata {
			return finding.Hidden
		}
	}
	return field.JSON(v)
}
