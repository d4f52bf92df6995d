package component

import (
	"encoding/json"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// wrongType is a field of a user's configuration object whose value has another type than the
// program's. Decoders say what they found, but not where.
type wrongType struct {
	field string // "conntrack.maxPerCore", "registerWithTaints[1].key"
	wants string // completes "this takes"
	value any
}

func (e *wrongType) Error() string {
	return fmt.Sprintf("%s: this takes %s, but %s", e.field, e.wants, describe(e.value))
}

// wrongTypes are all of them in one object.
type wrongTypes []*wrongType

func (e wrongTypes) Error() string {
	words := make([]string, len(e))
	for i, one := range e {
		words[i] = one.Error()
	}
	return strings.Join(words, "\n")
}

// checkTypes compares a value, as decoded from JSON, with the type that it is to be decoded into.
// It ignores fields that the type does not have: the decoder reports these by name.
func checkTypes(field string, v any, t reflect.Type) (errs wrongTypes) {
	wrong := func(wants string) wrongTypes { return wrongTypes{{field, wants, v}} }
	if v == nil {
		return nil
	}
	if t.Kind() == reflect.Pointer {
		return checkTypes(field, v, t.Elem())
	}
	if target := reflect.New(t); t == reflect.TypeFor[metav1.Duration]() || implementsUnmarshaler(target) {
		if b, err := json.Marshal(v); err == nil && json.Unmarshal(b, target.Interface()) == nil {
			return nil
		}
		if t == reflect.TypeFor[metav1.Duration]() {
			return wrong("a duration such as 1m30s")
		}
		return wrong("another value")
	}
	switch t.Kind() {
	case reflect.Struct, reflect.Map:
		members, ok := v.(map[string]any)
		if !ok {
			return wrong("an object")
		}
		for _, name := range slices.Sorted(maps.Keys(members)) {
			if below, known := memberType(t, name); known {
				errs = append(errs, checkTypes(join(field, name), members[name], below)...)
			}
		}
	case reflect.Slice:
		list, ok := v.([]any)
		if !ok {
			return wrong("a list")
		}
		for i, e := range list {
			errs = append(errs, checkTypes(fmt.Sprintf("%s[%d]", field, i), e, t.Elem())...)
		}
	case reflect.String:
		if _, ok := v.(string); !ok {
			return wrong("a string")
		}
	case reflect.Bool:
		if _, ok := v.(bool); !ok {
			return wrong("true or false")
		}
	case reflect.Int, reflect.Int8, reflect.Int16, reflect.Int32, reflect.Int64, reflect.Uint, reflect.Uint8, reflect.Uint16, reflect.Uint32, reflect.Uint64:
		if b, err := json.Marshal(v); err != nil || json.Unmarshal(b, reflect.New(t).Interface()) != nil {
			return wrong("a whole number")
		}
	case reflect.Float32, reflect.Float64:
		switch v.(type) {
		case int64, float64:
		default:
			return wrong("a number")
		}
	}
	return errs
}

func implementsUnmarshaler(v reflect.Value) bool {
	_, ok := v.Interface().(json.Unmarshaler)
	return ok
}

// memberType returns the type of a member of a map, or of a struct by its name in JSON.
func memberType(t reflect.Type, name string) (reflect.Type, bool) {
	if t.Kind() == reflect.Map {
		return t.Elem(), true
	}
	for i := range t.NumField() {
		f := t.Field(i)
		tag, _, _ := strings.Cut(f.Tag.Get("json"), ",")
		if tag == name {
			return f.Type, true
		}
		if tag == "" && f.Anonymous {
			if below, ok := memberType(f.Type, name); ok {
				return below, true
			}
		}
	}
	return nil, false
}

// join returns the path of a member. A name that is no word is quoted.
func join(field, name string) string {
	switch {
	case strings.ContainsAny(name, "./[ "):
		return fmt.Sprintf("%s[%q]", field, name)
	case field == "":
		return name
	}
	return field + "." + name
}

func describe(v any) string {
	switch v := v.(type) {
	case string:
		return fmt.Sprintf("%q is a string", v)
	case bool:
		return fmt.Sprintf("%t is neither a string nor a number", v)
	case []any:
		return "this is a list"
	case map[string]any:
		return "this is an object"
	}
	return fmt.Sprintf("%v is a number", v)
}
