package iam

import (
	"slices"
	"strings"
)

// Demand is one permission that a request needs.
type Demand struct {
	Action   string              // "ec2:RunInstances"
	Resource string              // an ARN, or * where the action knows no resources
	Context  map[string][]string // condition keys
}

// Principal is who makes a request.
type Principal struct {
	ARN string
	// Everything is true for the account's owner, who has no policies.
	Everything bool
	Policies   []Policy // of the user or role
	Session    *Policy  // of the session, which can only take away; nil if it has none
}

// DeniedError says which demand of a request is not allowed.
type DeniedError struct {
	Principal, Action, Resource string
	Explicit                    bool // a statement denies it; otherwise none allows it
	Session                     bool // the policy of the session is the reason
}

func (e *DeniedError) Error() string {
	on, kind, article := "", "identity-based policy", "an "
	if e.Resource != "*" {
		on = " on resource: " + e.Resource
	}
	if e.Session {
		kind, article = "session policy", "a "
	}
	why := "because no " + kind + " allows the " + e.Action + " action"
	if e.Explicit {
		why = "with an explicit deny in " + article + kind
	}
	return "User: " + e.Principal + " is not authorized to perform: " + e.Action + on + " " + why
}

// ByDefault reports whether only no policy of the user or role allows the demand. What a resource
// policy allows is allowed then.
func (e *DeniedError) ByDefault() bool { return !e.Explicit && !e.Session }

// Authorize returns a DeniedError for the first demand that is not allowed.
func (p Principal) Authorize(demands []Demand) error {
	if p.Everything && p.Session == nil {
		return nil
	}
	for _, d := range demands {
		allowed, denied := decide(p.Policies, d)
		if denied || !allowed && !p.Everything {
			return &DeniedError{Principal: p.ARN, Action: d.Action, Resource: d.Resource, Explicit: denied}
		}
		if p.Session == nil {
			continue
		}
		if allowed, denied = decide([]Policy{*p.Session}, d); denied || !allowed {
			return &DeniedError{Principal: p.ARN, Action: d.Action, Resource: d.Resource, Explicit: denied, Session: true}
		}
	}
	return nil
}

// decide says whether a statement allows the demand, and whether one denies it.
func decide(policies []Policy, d Demand) (allowed, denied bool) {
	for _, p := range policies {
		for _, s := range p.Statements {
			if s.applies(d) {
				allowed, denied = allowed || !s.Deny, denied || s.Deny
			}
		}
	}
	return allowed, denied
}

func (s Statement) applies(d Demand) bool {
	action := func(pattern string) bool { return wildcard(strings.ToLower(pattern), strings.ToLower(d.Action)) }
	resource := func(pattern string) bool { return wildcard(pattern, d.Resource) }
	return covers(s.Actions, s.NotActions, action) && covers(s.Resources, s.NotResource, resource) &&
		!slices.ContainsFunc(s.Conditions, func(c condition) bool { return !c.holds(d.Context) })
}

func covers(in, notIn []string, match func(string) bool) bool {
	if len(notIn) > 0 {
		return !slices.ContainsFunc(notIn, match)
	}
	return slices.ContainsFunc(in, match)
}
