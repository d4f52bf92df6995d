package iam

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
)

// condition is one operator with one key and its values. All conditions of a statement must hold.
type condition struct {
	operator operator
	ifExists bool   // it also holds if the request lacks the key
	set      string // ForAllValues, ForAnyValue or empty
	key      string
	values   []string
	expand   expander
}

// operator compares a value of the request with one of the policy. A negated operator holds if no
// value of the policy matches, and if the request lacks the key.
type operator struct {
	name    string
	negated bool
	match   func(policy, request string) bool
}

// operators are those evaluated here. Dates, addresses and binary values are not.
var operators = func() map[string]operator {
	fold := func(p, r string) bool { return strings.EqualFold(plain(p), r) }
	exact := func(p, r string) bool { return plain(p) == r }
	number := func(holds func(order int) bool) func(p, r string) bool {
		return func(p, r string) bool {
			want, err := strconv.ParseFloat(p, 64)
			got, err2 := strconv.ParseFloat(r, 64)
			return err == nil && err2 == nil && holds(cmp.Compare(got, want))
		}
	}
	all := map[string]operator{}
	for _, o := range []operator{
		{"StringEquals", false, exact}, {"StringNotEquals", true, exact},
		{"StringEqualsIgnoreCase", false, fold}, {"StringNotEqualsIgnoreCase", true, fold},
		{"StringLike", false, wildcard}, {"StringNotLike", true, wildcard},
		{"ArnEquals", false, arnLike}, {"ArnNotEquals", true, arnLike}, {"ArnLike", false, arnLike}, {"ArnNotLike", true, arnLike},
		{"Bool", false, fold},
		{"NumericEquals", false, number(func(o int) bool { return o == 0 })}, {"NumericNotEquals", true, number(func(o int) bool { return o == 0 })},
		{"NumericLessThan", false, number(func(o int) bool { return o < 0 })}, {"NumericLessThanEquals", false, number(func(o int) bool { return o <= 0 })},
		{"NumericGreaterThan", false, number(func(o int) bool { return o > 0 })}, {"NumericGreaterThanEquals", false, number(func(o int) bool { return o >= 0 })},
		{"Null", false, nil},
	} {
		all[o.name] = o
	}
	return all
}()

func parseConditions(in map[string]map[string]words, variables expander) ([]condition, error) {
	var out []condition
	for _, name := range slices.Sorted(maps.Keys(in)) {
		c := condition{expand: variables}
		operator := name
		if set, rest, ok := strings.Cut(name, ":"); ok {
			if set != "ForAllValues" && set != "ForAnyValue" {
				return nil, fmt.Errorf("unknown condition operator %q", name)
			}
			c.set, operator = set, rest
		}
		operator, c.ifExists = strings.CutSuffix(operator, "IfExists")
		var ok bool
		if c.operator, ok = operators[operator]; !ok || c.operator.match == nil && (c.ifExists || c.set != "") {
			return nil, fmt.Errorf("condition operator %q is not known, or not evaluated here", name)
		}
		for _, key := range slices.Sorted(maps.Keys(in[name])) {
			c := c
			if c.key, c.values = key, in[name][key]; len(c.values) == 0 {
				return nil, fmt.Errorf("condition %s of %s has no value", name, key)
			}
			out = append(out, c)
		}
	}
	return out, nil
}

// holds evaluates the condition in a request's context. A value with a variable that has no value matches nothing.
// Of tags whose keys differ in case only, AWS does not say which one counts. A permission needs the condition to hold with each
// of them, and a denial with any of them.
func (c condition) holds(context map[string][]string, deny bool) bool {
	spelled := lookup(context, c.key)
	if len(spelled) == 0 {
		return c.compare(nil, context)
	}
	return slices.ContainsFunc(spelled, func(have []string) bool { return c.compare(have, context) == deny }) == deny
}

// compare evaluates the condition with the values of its key, nil if the request lacks it.
func (c condition) compare(have []string, context map[string][]string) bool {
	if c.operator.match == nil { // Null
		return slices.ContainsFunc(c.values, func(v string) bool { return strings.EqualFold(v, strconv.FormatBool(have == nil)) })
	}
	one := func(value string) bool {
		matches := slices.ContainsFunc(c.values, func(v string) bool {
			v, ok := c.expand(v, context)
			return ok && c.operator.match(v, value)
		})
		return matches != c.operator.negated
	}
	switch {
	case have == nil:
		return c.ifExists || c.set == "ForAllValues" || c.set == "" && c.operator.negated
	case c.set == "ForAllValues":
		return !slices.ContainsFunc(have, func(v string) bool { return !one(v) })
	}
	return slices.ContainsFunc(have, one)
}

// lookup returns the values of a condition key, for each spelling of it: case is ignored in its name, and so in the key of a tag.
func lookup(context map[string][]string, key string) [][]string {
	if v, ok := context[key]; ok && !strings.Contains(key, "/") {
		return [][]string{v}
	}
	var out [][]string
	for _, k := range slices.Sorted(maps.Keys(context)) {
		if strings.EqualFold(k, key) {
			out = append(out, context[k])
		}
	}
	return out
}

// arnLike matches each of the six parts of an ARN by itself.
func arnLike(pattern, arn string) bool {
	want, have := strings.SplitN(pattern, ":", 6), strings.SplitN(arn, ":", 6)
	if len(want) != 6 || len(have) != 6 {
		return pattern == "*"
	}
	for n := range want {
		if !wildcard(want[n], have[n]) {
			return false
		}
	}
	return true
}

// wildcard matches * and ?, but not those after literal.
func wildcard(pattern, s string) bool {
	for len(pattern) > 0 {
		switch pattern[0] {
		case '*':
			pattern = strings.TrimLeft(pattern, "*")
			for n := range len(s) + 1 {
				if wildcard(pattern, s[n:]) {
					return true
				}
			}
			return false
		case '?':
			if s == "" {
				return false
			}
		case literal:
			if pattern = pattern[1:]; pattern == "" || s == "" || s[0] != pattern[0] {
				return false
			}
		default:
			if s == "" || s[0] != pattern[0] {
				return false
			}
		}
		pattern, s = pattern[1:], s[1:]
	}
	return s == ""
}
