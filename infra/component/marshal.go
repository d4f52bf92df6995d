package component

import (
	"fmt"
	"reflect"
	"strings"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/json"
	"sigs.k8s.io/yaml"

	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/desired"
)

// toMap converts a pointer to a typed object into a map without its status and without fields that
// hold the zero value of their type, which mean nothing in a configuration. A zero behind a pointer
// is kept.
func toMap(object any) (map[string]any, error) {
	m, err := runtime.DefaultUnstructuredConverter.ToUnstructured(object)
	if err != nil {
		return nil, fmt.Errorf("marshal %T: %w", object, err)
	}
	delete(m, "status")
	prune(reflect.ValueOf(object).Elem(), m)
	return m, nil
}

// prune removes the zero fields of a struct from its map.
func prune(v reflect.Value, m map[string]any) {
	for i := range v.NumField() {
		field, value := v.Type().Field(i), v.Field(i)
		name, _, _ := strings.Cut(field.Tag.Get("json"), ",")
		switch below := m[name].(type) {
		case map[string]any:
			if value.Kind() == reflect.Pointer {
				value = value.Elem()
			} else if value.IsZero() {
				delete(m, name)
				continue
			}
			if value.Kind() == reflect.Struct {
				prune(value, below)
			}
		case []any:
			for j, e := range below {
				if e, ok := e.(map[string]any); ok && value.Index(j).Kind() == reflect.Struct {
					prune(value.Index(j), e)
				}
			}
		default:
			if name == "" && field.Anonymous {
				prune(value, m)
			} else if value.IsZero() {
				delete(m, name)
			}
		}
	}
}

// overlay returns base with the user's values merged over it: objects field by field, everything
// else replaced. It decodes the result into into, and unknown fields are errors. Values of another
// type than the program's are wrongTypes.
func overlay(base, user map[string]any, into any) (map[string]any, error) {
	user, err := normalize(user)
	if err != nil {
		return nil, err
	}
	if wrong := checkTypes("", user, reflect.TypeOf(into)); len(wrong) > 0 {
		return nil, wrong
	}
	merged := mergeMaps(base, user)
	if err := runtime.DefaultUnstructuredConverter.FromUnstructuredWithValidation(merged, into, true); err != nil {
		return nil, err
	}
	return merged, nil
}

// normalize converts numbers to the types in unstructured objects (int64, float64).
func normalize(m map[string]any) (map[string]any, error) {
	if len(m) == 0 {
		return nil, nil
	}
	b, err := json.Marshal(m)
	if err != nil {
		return nil, err
	}
	out := map[string]any{}
	return out, json.Unmarshal(b, &out)
}

func mergeMaps(base, over map[string]any) map[string]any {
	out := make(map[string]any, len(base)+len(over))
	for k, v := range base {
		out[k] = v
	}
	for k, v := range over {
		below, isMap := out[k].(map[string]any)
		above, alsoMap := v.(map[string]any)
		if isMap && alsoMap {
			v = mergeMaps(below, above)
		}
		out[k] = v
	}
	return out
}

// yamlFile renders a typed object, or a map made of one, with sorted keys. All of it may be shown.
func yamlFile(path string, object any) (desired.File, error) {
	m, ok := object.(map[string]any)
	if !ok {
		var err error
		if m, err = toMap(object); err != nil {
			return desired.File{}, err
		}
	}
	b, err := yaml.Marshal(m)
	if err != nil {
		return desired.File{}, fmt.Errorf("marshal %s: %w", path, err)
	}
	return desired.File{Path: path, Mode: 0o644, Content: b}.Readable(), nil
}

// configFile renders the configuration of a program, over which the user's fields are merged. Its text hides
// the values of some of these.
func configFile(path, program string, config, user map[string]any) (desired.File, error) {
	file, err := yamlFile(path, config)
	if err != nil || len(user) == 0 {
		return file, err
	}
	shown, err := yamlFile(path, hideFields(program, config, user))
	file.Text = shown.Content
	return file, err
}
