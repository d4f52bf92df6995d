package ec2

import (
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"maps"
	"net/url"
	"regexp"
	"slices"
	"strings"

	"github.com/k8s-from-scratch/terraform-provider-k8s/internal/lab/cloud/wire"
)

// describeRequest has the parameters that most Describe actions share.
type describeRequest struct {
	request
	Filters    []filter `query:"Filter"`
	MaxResults *int
	NextToken  string
}

type filter struct {
	Name   string
	Values []string `query:"Value"`
}

// fields are functions that return a resource's values, by filter name.
type fields[T any] map[string]func(*tx, *T) []string

func one(s string) []string {
	if s == "" {
		return nil
	}
	return []string{s}
}

func yesNo(b bool) []string {
	if b {
		return []string{"true"}
	}
	return []string{"false"}
}

// selection is the input of a Describe action: the resources, and how to select from them.
type selection[T any] struct {
	kind      kind
	from      map[string]*T
	parameter string   // name of the id list, for messages
	ids       []string // requested ids
	fields    fields[T]
	request   describeRequest
	minPage   int // smallest MaxResults, 5 for most actions; 0 if the action has no pages
}

// run returns one page, ordered by id, and the token of the next.
func (s selection[T]) run(t *tx) (page []*T, next string, err error) {
	if err := checkFilters(s.request.Filters, s.fields); err != nil {
		return nil, "", err
	}
	for _, id := range s.ids {
		if _, err := find(t, s.kind, s.from, s.parameter, id); err != nil {
			return nil, "", err
		}
	}
	seen := make(map[string]*T, len(s.from))
	var ids []string
	for _, id := range slices.Sorted(maps.Keys(s.from)) {
		if len(s.ids) > 0 && !slices.Contains(s.ids, id) {
			continue
		}
		if len(s.ids) == 0 && t.c.faults.Hidden(id, t.now) {
			continue
		}
		seen[id] = asSeen(t, id, s.from[id])
		if t.matches(id, s.request.Filters, func(name string) []string { return s.fields[name](t, seen[id]) }) {
			ids = append(ids, id)
		}
	}
	ids, next, err = t.cut(ids, s.request.MaxResults, s.request.NextToken, s.minPage, len(s.ids) > 0)
	if err != nil {
		return nil, "", err
	}
	for _, id := range ids {
		page = append(page, seen[id])
	}
	return page, next, nil
}

// describe returns one page of the selected resources in their form for answers, and the token of
// the next.
func describe[T, I any](t *tx, s selection[T], item func(*T) I) (items []I, next string, err error) {
	page, next, err := s.run(t)
	for _, resource := range page {
		items = append(items, item(resource))
	}
	return items, next, err
}

func checkFilters[T any](filters []filter, known fields[T]) error {
	for _, f := range filters {
		if strings.HasPrefix(f.Name, "tag:") || f.Name == "tag-key" {
			continue
		}
		if _, ok := known[f.Name]; !ok {
			return invalidValue("The filter '%s' is invalid", f.Name)
		}
	}
	return nil
}

// matches reports whether the resource matches every filter. A filter matches if any of its values
// does. Values may contain the wildcards * and ?.
func (t *tx) matches(id string, filters []filter, value func(name string) []string) bool {
	for _, f := range filters {
		var have []string
		if key, ok := strings.CutPrefix(f.Name, "tag:"); ok {
			if v, ok := t.st.Tags[id][key]; ok {
				have = []string{v}
			}
		} else if f.Name == "tag-key" {
			have = slices.Collect(maps.Keys(t.st.Tags[id]))
		} else {
			have = value(f.Name)
		}
		if !slices.ContainsFunc(f.Values, func(pattern string) bool {
			return slices.ContainsFunc(have, func(v string) bool { return wildcard(pattern, v) })
		}) {
			return false
		}
	}
	return true
}

func wildcard(pattern, value string) bool {
	if !strings.ContainsAny(pattern, `*?\`) {
		return pattern == value
	}
	var re strings.Builder
	re.WriteString(`(?s)\A`)
	escaped := false
	for _, r := range pattern {
		switch {
		case escaped:
			re.WriteString(regexp.QuoteMeta(string(r)))
			escaped = false
		case r == '\\':
			escaped = true
		case r == '*':
			re.WriteString(".*")
		case r == '?':
			re.WriteString(".")
		default:
			re.WriteString(regexp.QuoteMeta(string(r)))
		}
	}
	re.WriteString(`\z`)
	return regexp.MustCompile(re.String()).MatchString(value)
}

// cut is as the function of this name, with pages as short as a fault makes them.
func (t *tx) cut(ids []string, size *int, token string, minPage int, byID bool) (page []string, next string, err error) {
	if n := t.c.faults.PageItems(t.action); n > 0 && minPage > 0 && !byID {
		if size != nil && *size < n {
			n = *size
		}
		if _, _, err := cut(nil, size, "", minPage, false); err != nil {
			return nil, "", err
		}
		size, minPage = &n, 1
	}
	return cut(ids, size, token, minPage, byID)
}

// cut returns the page of ordered ids after token. A token has the last id of its page, so that
// pages stay correct while resources change.
func cut(ids []string, size *int, token string, minPage int, byID bool) (page []string, next string, err error) {
	limit := len(ids)
	if size != nil {
		if byID {
			return nil, "", wire.Refuse("InvalidParameterCombination", "The parameter that lists ids cannot be used with the parameter maxResults")
		}
		switch {
		case *size < minPage:
			return nil, "", invalidValue("Value ( %d ) for parameter maxResults is invalid. Expecting a value greater than or equal to %d.", *size, minPage)
		case *size > 1000:
			return nil, "", invalidValue("Value ( %d ) for parameter maxResults is invalid. Expecting a value less than or equal to 1000.", *size)
		}
		limit = *size
	}
	if token != "" {
		last, err := base64.RawURLEncoding.DecodeString(token)
		if err != nil || !strings.HasPrefix(string(last), "after:") {
			return nil, "", wire.Refuse("InvalidNextToken", "The specified token is not valid.")
		}
		ids = ids[lowerBound(ids, strings.TrimPrefix(string(last), "after:")):]
	}
	if limit >= len(ids) {
		return ids, "", nil
	}
	return ids[:limit], base64.RawURLEncoding.EncodeToString([]byte("after:" + ids[limit-1])), nil
}

func lowerBound(ids []string, last string) int {
	n, found := slices.BinarySearch(ids, last)
	if found {
		n++
	}
	return n
}

// fingerprint identifies a request by all parameters except its token.
func fingerprint(form url.Values) string {
	f := maps.Clone(form)
	for _, k := range []string{"ClientToken", "DryRun", "Action", "Version"} {
		delete(f, k)
	}
	sum := sha256.Sum256([]byte(f.Encode()))
	return hex.EncodeToString(sum[:])
}
