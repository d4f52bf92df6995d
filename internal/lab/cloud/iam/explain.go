package iam

import (
	"fmt"
	"slices"
	"strings"
)

// Lacking says what the statements of policies lack to allow a demand: one text for each statement that allows the action,
// with its conditions that do not hold. Without such a statement it says that. A demand whose resource or whose context is
// not known has none: then it names the statements alone.
func Lacking(policies []Policy, d Demand) []string {
	var out []string
	for _, p := range policies {
		for n, s := range p.Statements {
			if s.Deny || !s.names(d) {
				continue
			}
			out = append(out, s.lacks(n, d))
		}
	}
	if out == nil {
		return []string{"no statement allows " + d.Action}
	}
	return out
}

// names reports whether a statement is about the action, and about the resource if that is known.
func (s Statement) names(d Demand) bool {
	anything := s
	anything.Conditions = nil
	if d.Resource == "" {
		anything.Resources, anything.NotResource, d.Resource = []string{"*"}, nil, "*"
	}
	return anything.applies(d)
}

func (s Statement) lacks(n int, d Demand) string {
	name := "statement " + s.ID
	if s.ID == "" {
		name = fmt.Sprintf("statement %d", n+1)
	}
	var fails []string
	wants := " wants "
	for _, c := range s.Conditions {
		switch {
		case d.Context == nil:
			wants = " allows it if the request met what is not known here: "
			fails = append(fails, c.String())
		case !c.holds(d.Context, false):
			have := "the request lacks the key"
			if spelled := lookup(d.Context, c.key); len(spelled) > 0 {
				have = fmt.Sprintf("the request has %q", slices.Concat(spelled...))
			}
			fails = append(fails, c.String()+", and "+have)
		}
	}
	switch {
	case len(fails) == 0 && d.Resource == "":
		return name + " allows it, perhaps for other resources"
	case len(fails) == 0:
		return name + " allows it, so that another policy is the reason"
	}
	return name + wants + strings.Join(fails, "; ")
}

// String returns a condition as policies have it.
func (c condition) String() string {
	name := c.operator.name
	if c.set != "" {
		name = c.set + ":" + name
	}
	if c.ifExists {
		name += "IfExists"
	}
	values := make([]string, len(c.values))
	for n, v := range c.values {
		values[n] = fmt.Sprintf("%q", v)
	}
	return name + " " + c.key + " " + strings.Join(values, " or ")
}
