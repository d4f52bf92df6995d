// Package field has what server-side apply knows of the fields of objects: how they are written, who
// owns them, and which of them cannot be changed.
//
// It is pure. What may not enter: the client of an API server, and what is done about a field.
package field

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strconv"
	"strings"
)

// Path is the way to fields of an object. It is written as drift writes it
// (spec.template.spec.containers[web].image), or as Kubernetes does in a conflict
// (.spec.template.spec.containers[name="web"].image). "[*]" stands for every element of a list.
type Path []step

// step is one step of a path. Exactly one of its fields is set, except that an index may be zero.
type step struct {
	key   string         // a field
	keys  map[string]any // the element of a list with these fields
	value any            // the element of a list that is this value
	all   bool           // every element of a list
	index int            // the element of a list at this position
}

// Key returns the path to a field of what p leads to.
func (p Path) Key(key string) Path { return append(slices.Clip(p), step{key: key}) }

// Named returns the path to the element with a name of the list that p leads to.
func (p Path) Named(name string) Path {
	return append(slices.Clip(p), step{keys: map[string]any{"name": name}})
}

// At returns the path to an element of the list that p leads to.
func (p Path) At(index int) Path { return append(slices.Clip(p), step{index: index}) }

// String writes the path. Keys with dots are quoted so that it stays readable.
func (p Path) String() string {
	var b strings.Builder
	for _, s := range p {
		name, named := s.keys["name"].(string)
		switch {
		case s.key != "" && strings.ContainsAny(s.key, `./[]"`):
			fmt.Fprintf(&b, "[%q]", s.key)
		case s.key != "" && b.Len() == 0:
			b.WriteString(s.key)
		case s.key != "":
			b.WriteString("." + s.key)
		case s.all:
			b.WriteString("[*]")
		case named && len(s.keys) == 1:
			b.WriteString("[" + name + "]")
		case s.keys != nil:
			var pairs []string
			for _, k := range slices.Sorted(maps.Keys(s.keys)) {
				pairs = append(pairs, k+"="+JSON(s.keys[k]))
			}
			b.WriteString("[" + strings.Join(pairs, ",") + "]")
		case s.value != nil:
			b.WriteString("[=" + JSON(s.value) + "]")
		default:
			fmt.Fprintf(&b, "[%d]", s.index)
		}
	}
	return b.String()
}

// JSON writes a value in one line of JSON.
func JSON(v any) string {
	var b strings.Builder
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	if e.Encode(v) != nil {
		return fmt.Sprint(v)
	}
	return strings.TrimSuffix(b.String(), "\n")
}

// ParsePath reads a path.
func ParsePath(text string) (Path, error) {
	var p Path
	rest := strings.TrimPrefix(text, ".")
	for first := true; rest != "" || first; first = false {
		if inside, ok := strings.CutPrefix(rest, "["); ok {
			s, after, err := parseElement(inside)
			if err != nil {
				return nil, fmt.Errorf("%q is not the path of a field: %w", text, err)
			}
			p, rest = append(p, s), after
		} else {
			if !first {
				if rest, ok = strings.CutPrefix(rest, "."); !ok {
					return nil, fmt.Errorf("%q is not the path of a field: a dot or a bracket is missing before %q", text, rest)
				}
			}
			end := strings.IndexAny(rest, ".[")
			if end < 0 {
				end = len(rest)
			}
			if end == 0 || strings.ContainsAny(rest[:end], "]\"= \t\n*") {
				return nil, fmt.Errorf("%q is not the path of a field, such as spec.replicas or spec.template.spec.containers[web].image", text)
			}
			p, rest = append(p, step{key: rest[:end]}), rest[end:]
		}
	}
	return p, nil
}

// parseElement reads what follows a bracket.
func parseElement(text string) (s step, rest string, err error) {
	if quoted, err := strconv.QuotedPrefix(text); err == nil {
		key, _ := strconv.Unquote(quoted)
		rest, ok := strings.CutPrefix(text[len(quoted):], "]")
		if !ok || key == "" {
			return step{}, "", errors.New(`a quoted key is written ["example.com/name"]`)
		}
		return step{key: key}, rest, nil
	}
	if set, ok := strings.CutPrefix(text, "="); ok {
		value, rest, err := parseValue(set)
		if err != nil || !strings.HasPrefix(rest, "]") {
			return step{}, "", errors.New(`a value is written [="text"]`)
		}
		return step{value: value}, rest[1:], nil
	}
	inside, rest, ok := strings.Cut(text, "]")
	if !ok || inside == "" {
		return step{}, "", errors.New("a bracket holds a name, a number, * or [key=\"value\"], and is closed")
	}
	if !strings.Contains(inside, "=") {
		if n, err := strconv.Atoi(inside); err == nil && n >= 0 {
			return step{index: n}, rest, nil
		}
		if inside == "*" {
			return step{all: true}, rest, nil
		}
		return step{keys: map[string]any{"name": inside}}, rest, nil
	}
	keys := map[string]any{}
	for rest = text; ; {
		name, after, ok := strings.Cut(rest, "=")
		if !ok || name == "" {
			return step{}, "", errors.New(`the element of a list is written [key="value"]`)
		}
		value, after, err := parseValue(after)
		if err != nil {
			return step{}, "", err
		}
		keys[name] = value
		if after, ok := strings.CutPrefix(after, "]"); ok {
			return step{keys: keys}, after, nil
		}
		if rest, ok = strings.CutPrefix(after, ","); !ok {
			return step{}, "", errors.New(`the element of a list is written [key="value",other=1]`)
		}
	}
}

// parseValue reads a value up to a comma or a bracket.
func parseValue(text string) (value any, rest string, err error) {
	if quoted, err := strconv.QuotedPrefix(text); err == nil {
		value, _ := strconv.Unquote(quoted)
		return value, text[len(quoted):], nil
	}
	end := strings.IndexAny(text, ",]")
	if end <= 0 {
		return nil, "", errors.New("a value is missing, or its bracket is not closed")
	}
	if n, err := strconv.ParseInt(text[:end], 10, 64); err == nil {
		return n, text[end:], nil
	}
	if b, err := strconv.ParseBool(text[:end]); err == nil {
		return b, text[end:], nil
	}
	return text[:end], text[end:], nil
}

// place is one field of one object: the keys of maps and the positions in lists that lead to it.
type place []any

// In reports whether an object has the field, or any of the fields.
func (p Path) In(object map[string]any) bool { return len(p.places(object)) > 0 }

// places returns the fields of an object to which the path leads, those at the end of lists first.
func (p Path) places(object map[string]any) []place {
	var out []place
	p.walk(object, nil, func(at place) { out = append(out, slices.Clone(at)) })
	slices.Reverse(out)
	return out
}

func (p Path) walk(v any, at place, found func(place)) {
	if len(p) == 0 {
		found(at)
		return
	}
	s := p[0]
	switch v := v.(type) {
	case map[string]any:
		// Kubernetes does not quote keys that have dots, so a key may be several steps.
		key := s.key
		for n := 1; key != "" && n <= len(p); n++ {
			if child, ok := v[key]; ok {
				p[n:].walk(child, append(at, key), found)
				return
			}
			if n == len(p) || p[n].key == "" {
				return
			}
			key += "." + p[n].key
		}
	case []any:
		if s.key != "" {
			return
		}
		for i, e := range v {
			if s.selects(e, i) {
				p[1:].walk(e, append(at, i), found)
			}
		}
	}
}

// selects reports whether the step leads to an element of a list. What the element leaves out may be
// a default, so it is enough that nothing contradicts, and that something agrees.
func (s step) selects(e any, i int) bool {
	switch {
	case s.all:
		return true
	case s.keys != nil:
		m, _ := e.(map[string]any)
		agrees := false
		for k, want := range s.keys {
			have, ok := m[k]
			if ok && !same(have, want) {
				return false
			}
			agrees = agrees || ok
		}
		return agrees
	case s.value != nil:
		return same(e, s.value)
	}
	return s.index == i
}

// same compares values that may have different types of numbers.
func same(a, b any) bool { return reflect.DeepEqual(a, b) || JSON(a) == JSON(b) }

// of returns the path that finds the field of one object in another one: elements of lists are known
// by their names if they have names.
func (at place) of(object map[string]any) Path {
	var out Path
	var v any = object
	for _, k := range at {
		switch k := k.(type) {
		case string:
			out = out.Key(k)
			m, _ := v.(map[string]any)
			v = m[k]
		case int:
			list, _ := v.([]any)
			v = list[k]
			if m, ok := v.(map[string]any); ok && m["name"] != nil {
				out = append(out, step{keys: map[string]any{"name": m["name"]}})
			} else {
				out = out.At(k)
			}
		}
	}
	return out
}

// get returns the value of a field that exists.
func (at place) get(object map[string]any) any {
	var v any = object
	for _, k := range at {
		switch k := k.(type) {
		case string:
			v = v.(map[string]any)[k] //nolint:forcetypeassert // the place exists
		case int:
			v = v.([]any)[k] //nolint:forcetypeassert // the place exists
		}
	}
	return v
}

// set replaces the value of a field that exists.
func (at place) set(object map[string]any, value any) {
	switch k := at[len(at)-1].(type) {
	case string:
		at[:len(at)-1].get(object).(map[string]any)[k] = value //nolint:forcetypeassert // the place exists
	case int:
		at[:len(at)-1].get(object).([]any)[k] = value //nolint:forcetypeassert // the place exists
	}
}

// remove removes a field that exists.
func (at place) remove(object map[string]any) {
	parent := at[:len(at)-1]
	switch k := at[len(at)-1].(type) {
	case string:
		delete(parent.get(object).(map[string]any), k) //nolint:forcetypeassert // the place exists
	case int:
		list := parent.get(object).([]any) //nolint:forcetypeassert // the place exists
		parent.set(object, slices.Delete(slices.Clone(list), k, k+1))
	}
}
