package iam

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/k8s-from-scratch/terraform-provider-k8s/internal/lab/cloud/wire"
)

// Trust is the trust policy of a role: who may assume it.
type Trust struct{ statements []trustStatement }

type trustStatement struct {
	deny           bool
	actions        []string
	anybody        bool // the principal is *
	aws, federated []string
	services       []string
	conditions     []condition
}

// Assumption is a request for a session of a role.
type Assumption struct {
	Action string // "sts:AssumeRole", "sts:AssumeRoleWithWebIdentity", "sts:TagSession" or "sts:SetSourceIdentity"
	// Caller is the ARN of the user or session that asks. With a web identity it is that of the
	// identity provider. A service of AWS has its name, such as what EC2 returns.
	Caller  string
	Role    string              // ARN of the role of the caller, if it is a session of one
	Context map[string][]string // condition keys
}

// DefaultTrust trusts the account, in which whoever has the permission may assume the role, and EC2,
// for instances with a profile.
func DefaultTrust(region, account string) string {
	return `{"Version":"2012-10-17","Statement":[{"Effect":"Allow","Principal":{"AWS":"arn:` + wire.Partition(region) + `:iam::` + account + `:root","Service":"` + EC2(region) + `"},"Action":"sts:AssumeRole"}]}`
}

// ParseTrust reads a trust policy. What IAM would refuse is an error, and so is what is not
// evaluated here.
func ParseTrust(raw []byte) (Trust, error) {
	all, variables, err := statements(raw)
	if err != nil {
		return Trust{}, err
	}
	var t Trust
	for n, raw := range all {
		s, err := parseTrustStatement(raw, variables)
		if err != nil {
			return Trust{}, fmt.Errorf("statement %d of the trust policy: %w", n+1, err)
		}
		t.statements = append(t.statements, s)
	}
	return t, nil
}

func parseTrustStatement(raw []byte, variables expander) (trustStatement, error) {
	var in struct {
		ID        string `json:"Sid"`
		Effect    string
		Principal json.RawMessage
		Action    words
		Condition map[string]map[string]words
	}
	if err := strict(raw, &in); err != nil {
		return trustStatement{}, err
	}
	s := trustStatement{deny: in.Effect == "Deny", actions: in.Action}
	switch {
	case in.Effect != "Allow" && in.Effect != "Deny":
		return s, fmt.Errorf("the effect is %q: want Allow or Deny", in.Effect)
	case len(in.Action) == 0:
		return s, errors.New("it needs Action")
	case len(in.Principal) == 0:
		return s, errors.New("it needs Principal")
	}
	for _, a := range in.Action {
		if service, name, ok := strings.Cut(a, ":"); !ok || !strings.EqualFold(service, "sts") || name == "" {
			return s, fmt.Errorf("%q is not an action of STS", a)
		}
	}
	if s.anybody = string(in.Principal) == `"*"`; !s.anybody {
		var kinds struct{ AWS, Federated, Service words }
		if err := strict(in.Principal, &kinds); err != nil {
			return s, fmt.Errorf("its principal: %w", err)
		}
		s.aws, s.federated, s.services = kinds.AWS, kinds.Federated, kinds.Service
		for _, p := range slices.Concat(kinds.AWS, kinds.Federated) {
			if p != "*" && strings.ContainsAny(p, "*?") {
				return s, fmt.Errorf("its principal %q has a wildcard", p)
			}
		}
	}
	var err error
	s.conditions, err = parseConditions(in.Condition, variables)
	return s, err
}

// Allows reports whether the role may be assumed. named says that the policy names the caller, and
// not only the caller's account: then the caller needs no permission of its own.
func (t Trust) Allows(a Assumption) (allowed, named bool) {
	for _, s := range t.statements {
		matches := func(pattern string) bool { return wildcard(strings.ToLower(pattern), strings.ToLower(a.Action)) }
		if !slices.ContainsFunc(s.actions, matches) || slices.ContainsFunc(s.conditions, func(c condition) bool { return !c.holds(a.Context, s.deny) }) {
			continue
		}
		is, itself := s.principal(a)
		if is && s.deny {
			return false, false
		}
		allowed, named = allowed || is, named || itself
	}
	return allowed, named
}

// principal reports whether the caller is one of the statement's principals, and whether by a name
// of its own.
func (s trustStatement) principal(a Assumption) (is, itself bool) {
	if strings.Contains(a.Caller, ":oidc-provider/") {
		is = slices.Contains(s.federated, a.Caller)
		return is, is
	}
	if !strings.HasPrefix(a.Caller, "arn:") {
		is = slices.Contains(s.services, a.Caller)
		return is, is
	}
	parts := strings.Split(a.Caller+"::::", ":")
	partition, account := parts[1], parts[4]
	is = s.anybody
	for _, p := range s.aws {
		switch p {
		case "*", account, "arn:" + partition + ":iam::" + account + ":root":
			is = true
		case a.Caller, cmp.Or(a.Role, a.Caller):
			is, itself = true, true
		}
	}
	return is, itself
}

// roleName returns the name of the role of a session, empty if the ARN is not that of one.
func roleName(arn string) string {
	_, session, _ := strings.Cut(arn, ":assumed-role/")
	role, _, _ := strings.Cut(session, "/")
	return role
}
