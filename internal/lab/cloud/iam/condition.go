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
	fold := func(p, r string) bool { return strings.EqualFold(p, r) }
	exact := func(p, r string) bool { return p == r }
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
		{"ArnEquals", false, wildcard}, {"ArnNotEquals", true, wildcard}, {"ArnLike", false, wildcard}, {"ArnNotLike", true, wildcard},
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

func parseConditions(in map[string]map[string]words) ([]condition, error) {
	var out []condition
	for _, name := range slices.Sorted(maps.Keys(in)) {
		c := condition{}
		plain := name
		if set, rest, ok := strings.Cut(name, ":"); ok {
			if set != "ForAllValues" && set != "ForAnyValue" {
				return nil, fmt.Errorf("unknown condition operator %q", name)
			}
			c.set, plain = set, rest
		}
		plain, c.ifExists = strings.CutSuffix(plain, "IfExists")
		var ok bool
		if c.operator, ok = operators[plain]; !ok || c.operator.match == nil && (c.ifExists || c.set != "") {
			return nil, fmt.Errorf("condition operator %q is not known, or not evaluated here", name)
		}
		for _, key := range slices.Sorted(maps.Keys(in[name])) {
			c := c
			if c.key, c.values = key, in[name][key]; len(c.values) == 0 {
				return nil, fmt.Errorf("condition %s of %s has no value", name, key)
			}
			for _, v := range c.values {
				if strings.Contains(v, "${") {
					return nil, fmt.Errorf("%q has a policy variable, which is not evaluated here", v)
				}
			}
			out = append(out, c)
		}
	}
	return out, nil
}

// holds evaluates the condition in a request's context. Keys are compared without regard to case,
// but the part after the slash, a tag's key, with it.
func (c condition) holds(context map[string][]string) bool {
	have, present := lookup(context, c.key)
	if c.operator.match == nil { // Null
		return slices.ContainsFunc(c.values, func(v string) bool { return strings.EqualFold(v, strconv.FormatBool(!present)) })
	}
	one := func(value string) bool {
		matches := slices.ContainsFunc(c.values, func(v string) bool { return c.operator.match(v, value) })
		return matches != c.operator.negated
	}
	switch {
	case !present:
		return c.ifExists || c.set == "ForAllValues" || c.set == "" && c.operator.negated
	case c.set == "ForAllValues":
		return !slices.ContainsFunc(have, func(v string) bool { return !one(v) })
	}
	return slices.ContainsFunc(have, one)
}

func lookup(context map[string][]string, key string) ([]string, bool) {
	name, tag, _ := strings.Cut(key, "/")
	for k, v := range context {
		n, t, _ := strings.Cut(k, "/")
		if strings.EqualFold(n, name) && t == tag {
			return v, true
		}
	}
	return nil, false
}

// wildcard matches * and ?.
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
		default:
			if s == "" || s[0] != pattern[0] {
				return false
			}
		}
		pattern, s = pattern[1:], s[1:]
	}
	return s == ""
}
