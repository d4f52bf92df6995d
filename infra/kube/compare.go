package kube

import (
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

// wordsLimit is how many characters of a value are shown.
const wordsLimit = 60

// bookkeeping are the fields the API server writes by itself.
var bookkeeping = [][]string{
	{"metadata", "managedFields"},
	{"metadata", "resourceVersion"},
	{"metadata", "generation"},
	{"metadata", "creationTimestamp"},
	{"metadata", "uid"},
	{"status"},
}

// differences says in words where the live object differs from what applying
// would make of it. The values of a Secret are not shown.
func differences(live, applied *unstructured.Unstructured) []string {
	strip := func(o *unstructured.Unstructured) map[string]any {
		o = o.DeepCopy()
		for _, field := range bookkeeping {
			unstructured.RemoveNestedField(o.Object, field...)
		}
		return o.Object
	}
	d := differ{secret: live.GetKind() == "Secret"}
	d.compare("", strip(live), strip(applied))
	return d.words
}

type differ struct {
	secret bool
	words  []string
}

func (d *differ) compare(path string, found, wanted any) {
	if reflect.DeepEqual(found, wanted) {
		return
	}
	switch w := wanted.(type) {
	case map[string]any:
		if f, ok := found.(map[string]any); ok {
			d.maps(path, f, w)
			return
		}
	case []any:
		if f, ok := found.([]any); ok {
			d.lists(path, f, w)
			return
		}
	}
	d.words = append(d.words, fmt.Sprintf("%s: found %s, wanted %s", path, d.show(path, found), d.show(path, wanted)))
}

func (d *differ) maps(path string, found, wanted map[string]any) {
	keys := map[string]bool{}
	for k := range found {
		keys[k] = true
	}
	for k := range wanted {
		keys[k] = true
	}
	for _, k := range slices.Sorted(maps.Keys(keys)) {
		d.compare(join(path, k), found[k], wanted[k])
	}
}

// lists pairs the elements by name when they have one, by position otherwise.
func (d *differ) lists(path string, found, wanted []any) {
	f, fNames := byName(found)
	w, wNames := byName(wanted)
	if f != nil && w != nil {
		for _, name := range slices.Compact(slices.Sorted(slices.Values(append(fNames, wNames...)))) {
			d.compare(fmt.Sprintf("%s[%s]", path, name), f[name], w[name])
		}
		if slices.Equal(slices.Sorted(slices.Values(fNames)), slices.Sorted(slices.Values(wNames))) && !slices.Equal(fNames, wNames) {
			d.words = append(d.words, fmt.Sprintf("%s: order is %s, wanted %s", path, strings.Join(fNames, ", "), strings.Join(wNames, ", ")))
		}
		return
	}
	for i := range max(len(found), len(wanted)) {
		d.compare(fmt.Sprintf("%s[%d]", path, i), at(found, i), at(wanted, i))
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

// join writes a path; keys that hold dots are quoted so that it stays readable.
func join(path, key string) string {
	switch {
	case strings.ContainsAny(key, "./"):
		return fmt.Sprintf("%s[%q]", path, key)
	case path == "":
		return key
	}
	return path + "." + key
}

func (d *differ) show(path string, v any) string {
	switch v := v.(type) {
	case nil:
		return "nothing"
	case map[string]any, []any:
		if d.secret {
			return "a value (hidden)"
		}
		return clip(fmt.Sprint(v))
	case string:
		if d.secret && !strings.HasPrefix(path, "metadata") {
			return "a value (hidden)"
		}
		return clip(fmt.Sprintf("%q", v))
	default:
		return fmt.Sprint(v)
	}
}

func clip(s string) string {
	if r := []rune(s); len(r) > wordsLimit {
		return string(r[:wordsLimit]) + "..."
	}
	return s
}
