package iam

import (
	"maps"
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
	Context    map[string][]string // condition keys about the principal
	Policies   []Policy            // of the user or role
	// The others can only take away. Nil stands for no limit.
	Boundary *Policy
	Session  []Policy // of the session; empty and not nil, they allow nothing
	Controls []Policy // service control policies of the account
}

// With returns the principal with the tags of its session, which count before tags of the user or role.
func (p Principal) With(tags map[string]string) Principal {
	for key, value := range tags {
		name := "aws:PrincipalTag/" + key
		maps.DeleteFunc(p.Context, func(other string, _ []string) bool { return strings.EqualFold(name, other) })
		p.Context[name] = []string{value}
	}
	return p
}

// Kind is a kind of policy, as refusals name it.
type Kind string

// The kinds of policies.
const (
	OfIdentity Kind = "identity-based policy"
	OfBoundary Kind = "permissions boundary"
	OfSession  Kind = "session policy"
	OfAccount  Kind = "service control policy"
)

// DeniedError says which demand of a request is not allowed, and why.
type DeniedError struct {
	Principal, Action, Resource string
	Explicit                    bool                // a statement denies it; otherwise none allows it
	Kind                        Kind                // of the policy that is the reason
	Context                     map[string][]string // condition keys of the demand and of the principal
	byDefault                   bool
}

// https://docs.aws.amazon.com/IAM/latest/UserGuide/troubleshoot_access-denied.html
func (e *DeniedError) Error() string {
	on, article := "", "a "
	if e.Resource != "*" {
		on = " on resource: " + e.Resource
	}
	if e.Kind == OfIdentity {
		article = "an "
	}
	why := "because no " + string(e.Kind) + " allows the " + e.Action + " action"
	if e.Explicit {
		why = "with an explicit deny in " + article + string(e.Kind)
	}
	return "User: " + e.Principal + " is not authorized to perform: " + e.Action + on + " " + why
}

// ByDefault reports whether no policy denies the demand, and those that do not allow it need not if a resource policy
// names the principal: policies of the user or role, and the boundary of a user.
// https://docs.aws.amazon.com/IAM/latest/UserGuide/access_policies_boundaries.html
func (e *DeniedError) ByDefault() bool { return e.byDefault }

// Unlimited reports whether nothing is denied to the principal, so that nobody need ask.
func (p Principal) Unlimited() bool { return p.Everything && p.Session == nil && p.Controls == nil }

// Authorize returns a DeniedError for the first demand that is not allowed.
func (p Principal) Authorize(demands []Demand) error {
	if p.Unlimited() {
		return nil
	}
	for _, d := range demands {
		context := maps.Clone(p.Context)
		if context == nil {
			context = map[string][]string{}
		}
		maps.Copy(context, d.Context)
		d.Context = context
		if err := p.authorize(d); err != nil {
			return err
		}
	}
	return nil
}

// authorize asks the policies of all kinds for an explicit denial first, then each kind for a permission.
// https://docs.aws.amazon.com/IAM/latest/UserGuide/reference_policies_evaluation-logic_policy-eval-denyallow.html
func (p Principal) authorize(d Demand) error {
	kinds := []struct {
		kind     Kind
		applies  bool
		policies []Policy
	}{
		{OfAccount, p.Controls != nil, p.Controls}, {OfIdentity, !p.Everything, p.Policies},
		{OfBoundary, p.Boundary != nil, nil}, {OfSession, p.Session != nil, p.Session},
	}
	if p.Boundary != nil {
		kinds[2].policies = []Policy{*p.Boundary}
	}
	var lacking *DeniedError
	for _, k := range kinds {
		allowed, denied := decide(k.policies, d)
		if denied {
			return &DeniedError{Principal: p.ARN, Action: d.Action, Resource: d.Resource, Explicit: true, Kind: k.kind, Context: d.Context}
		}
		if !k.applies || allowed {
			continue
		}
		if lacking == nil {
			lacking = &DeniedError{Principal: p.ARN, Action: d.Action, Resource: d.Resource, Kind: k.kind, Context: d.Context, byDefault: true}
		}
		lacking.byDefault = lacking.byDefault && (k.kind == OfIdentity || k.kind == OfBoundary && strings.Contains(p.ARN, ":user/"))
	}
	if lacking == nil {
		return nil
	}
	return lacking
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
	resource := func(pattern string) bool {
		pattern, ok := s.expand(pattern, d.Context)
		return ok && wildcard(pattern, d.Resource)
	}
	return covers(s.Actions, s.NotActions, action) && covers(s.Resources, s.NotResource, resource) &&
		!slices.ContainsFunc(s.Conditions, func(c condition) bool { return !c.holds(d.Context, s.Deny) })
}

func covers(in, notIn []string, match func(string) bool) bool {
	if len(notIn) > 0 {
		return !slices.ContainsFunc(notIn, match)
	}
	return slices.ContainsFunc(in, match)
}
