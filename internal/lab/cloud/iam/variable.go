package iam

import (
	"slices"
	"strings"
)

// literal stands before a * or ? of a pattern that is not a wildcard. IAM takes no such character in a policy.
const literal = '\x00'

// expander replaces the policy variables of a text.
type expander func(text string, context map[string][]string) (expanded string, ok bool)

// expand replaces the policy variables of a pattern. ok is false if one has no value, or several: nothing matches
// the pattern then. A value has no wildcards, and ${*}, ${?} and ${$} stand for the characters.
// https://docs.aws.amazon.com/IAM/latest/UserGuide/reference_policies_variables.html
func expand(text string, context map[string][]string) (string, bool) {
	var out strings.Builder
	for {
		before, rest, found := strings.Cut(text, "${")
		out.WriteString(before)
		if !found {
			return out.String(), true
		}
		name, after, closed := strings.Cut(rest, "}")
		if !closed {
			out.WriteString("${" + rest)
			return out.String(), true
		}
		text = after
		switch name {
		case "*", "?":
			out.WriteString(string(literal) + name)
			continue
		case "$":
			out.WriteString(name)
			continue
		}
		name, other, hasOther := strings.Cut(name, ",")
		values := slices.Concat(lookup(context, strings.TrimSpace(name))...)
		switch {
		case len(values) == 1:
			out.WriteString(literally(values[0]))
		case len(values) == 0 && hasOther:
			out.WriteString(literally(strings.Trim(strings.TrimSpace(other), "'")))
		default:
			return "", false
		}
	}
}

// asWritten is for policies of a version that knows no variables.
func asWritten(text string, _ map[string][]string) (string, bool) { return text, true }

var escape = strings.NewReplacer("*", string(literal)+"*", "?", string(literal)+"?")

func literally(value string) string { return escape.Replace(value) }

// plain returns a pattern for comparisons that know no wildcards.
func plain(pattern string) string { return strings.ReplaceAll(pattern, string(literal), "") }
