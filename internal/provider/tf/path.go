package tf

import (
	"strconv"
	"strings"

	"github.com/hashicorp/terraform-plugin-framework/path"
)

// Path parses a path such as `hosts[0].pod_cidr` or `admission_plugins["PodSecurity"]`: attributes,
// indices of lists and keys of maps. Of a path that it cannot parse it returns the beginning.
func Path(s string) path.Path {
	name, rest := cutName(s)
	p := path.Root(name)
	for rest != "" {
		if name, ok := strings.CutPrefix(rest, "."); ok {
			name, rest = cutName(name)
			p = p.AtName(name)
			continue
		}
		inside := strings.TrimPrefix(rest, "[")
		if quoted, err := strconv.QuotedPrefix(inside); err == nil {
			key, _ := strconv.Unquote(quoted)
			p, rest = p.AtMapKey(key), strings.TrimPrefix(inside[len(quoted):], "]")
			continue
		}
		index, after, _ := strings.Cut(inside, "]")
		i, err := strconv.Atoi(index)
		if err != nil {
			return p
		}
		p, rest = p.AtListIndex(i), after
	}
	return p
}

// cutName splits the first attribute's name from the rest.
func cutName(s string) (name, rest string) {
	if i := strings.IndexAny(s, ".["); i >= 0 {
		return s[:i], s[i:]
	}
	return s, ""
}
