package component

import (
	"fmt"
	"maps"
	"net/url"
	"reflect"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/json"
	"sigs.k8s.io/yaml"

	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/desired"
	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/setting"
)

// Fields converts a pointer to a typed object into a map without its status and without fields that
// hold the zero value of their type, which mean nothing in a configuration. A zero behind a pointer
// is kept.
func Fields(object any) (map[string]any, error) {
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
		if m, err = Fields(object); err != nil {
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

// A plan shows the text of files, and what the user sets may be a secret: of a sensitive variable, the provider
// sees only the value. So a value that the user gives for a flag or a field is shown only if it cannot be one.

// hidden stands for a value that is not shown.
const hidden = "(hidden)"

// shownPlugins are admission plugins whose configuration has no place for a secret.
var shownPlugins = map[string]bool{"EventRateLimit": true, "PodNodeSelector": true, "PodSecurity": true, "PodTolerationRestriction": true, "ResourceQuota": true}

// hide returns a with the values hidden that the user has given and that might be secrets.
func (a Args) hide(program string, user Args) Args {
	out := maps.Clone(a)
	for name, given := range user {
		if _, set := out[name]; !set || setting.Shown(program, setting.Flag, name) {
			continue
		}
		out[name] = slices.Clone(given)
		for i, v := range out[name] {
			if !setting.Plain(v) {
				out[name][i] = hidden
			}
		}
	}
	return out
}

// hideFields is [Args.hide] for a configuration over which the user's fields are merged.
func hideFields(program string, config, user map[string]any) map[string]any {
	var hide func(path string, value any) any
	hide = func(path string, value any) any {
		switch value := value.(type) {
		case map[string]any:
			out := make(map[string]any, len(value))
			for name, v := range value {
				out[name] = hide(path+"."+name, v)
			}
			return out
		case []any:
			out := make([]any, len(value))
			for i, v := range value {
				out[i] = hide(path, v)
			}
			return out
		case string:
			if value == "" || setting.Plain(value) || setting.Shown(program, setting.Field, path) {
				return value
			}
			return hidden
		}
		return value // a number, a switch or nothing
	}
	var walk func(below string, config, user map[string]any) map[string]any
	walk = func(below string, config, user map[string]any) map[string]any {
		out := maps.Clone(config)
		for name, given := range user {
			value, set := out[name]
			inside, isMap := value.(map[string]any)
			over, alsoMap := given.(map[string]any)
			switch {
			case isMap && alsoMap:
				out[name] = walk(below+name+".", inside, over)
			case set:
				out[name] = hide(below+name, value)
			}
		}
		return out
	}
	return walk("", config, user)
}

// hideURL returns a URL as text, without its user, its query and its fragment.
func hideURL(u *url.URL) string {
	shown := *u
	if u.User != nil {
		shown.User = url.User("HIDDEN")
	}
	if strings.Trim(u.Path, "/") != "" { // a token may be a part of it
		shown.Path, shown.RawPath = "/HIDDEN", ""
	}
	if u.RawQuery != "" {
		shown.RawQuery = "HIDDEN"
	}
	if u.Fragment != "" {
		shown.Fragment, shown.RawFragment = "HIDDEN", ""
	}
	return shown.String()
}

// hideURLText is [hideURL] for a text that should be a URL.
func hideURLText(text string) string {
	u, err := url.Parse(text)
	if err != nil {
		return hidden
	}
	return hideURL(u)
}
