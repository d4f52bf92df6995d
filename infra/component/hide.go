package component

import (
	"maps"
	"net/url"
	"regexp"
	"slices"

	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/setting"
)

// A plan shows the text of files, and what the user sets may be a secret: of a sensitive variable, the provider
// sees only the value. So a value that the user gives for a flag or a field is shown only if it cannot be one.

// hidden stands for a value that is not shown.
const hidden = "(hidden)"

// plain are switches, numbers, durations and quantities: too short to be a secret.
var plain = regexp.MustCompile(`^(?i:true|false|-?[0-9]{1,11}(\.[0-9]{1,3})?[a-z%]{0,2}|([0-9]{1,4}[hms]){2,3})$`)

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
			if !plain.MatchString(v) {
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
			if value == "" || plain.MatchString(value) || setting.Shown(program, setting.Field, path) {
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
