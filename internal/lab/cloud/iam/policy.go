// Package iam is the local cloud's Identity and Access Management, as far as other services need it:
// identity policies, the users and roles that have them, what each action demands, and the decision.
//
// It knows no HTTP, signatures and faults, and of the services only which parameters name resources.
// Trust policies of roles, permissions boundaries, policies of sessions and service control policies are evaluated.
// Other resource policies and resource control policies are not.
//
// Facts are from the IAM User Guide ("IAM JSON policy elements", "Policy evaluation logic") and from
// the Service Authorization Reference, unless a comment says otherwise.
package iam

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"unicode"
)

// Policy is an identity policy.
type Policy struct{ Statements []Statement }

// Statement allows or denies actions on resources.
type Statement struct {
	ID                     string
	Deny                   bool
	Actions, NotActions    []string
	Resources, NotResource []string
	Conditions             []condition
	expand                 expander
}

// document is a policy as it is written.
type document struct {
	Version   string
	ID        string `json:"Id"`
	Statement json.RawMessage
}

type statement struct {
	ID          string `json:"Sid"`
	Effect      string
	Action      words
	NotAction   words
	Resource    words
	NotResource words
	Condition   map[string]map[string]words
}

// words is a text or a list of them.
type words []string

// UnmarshalJSON implements json.Unmarshaler.
func (w *words) UnmarshalJSON(raw []byte) error {
	var values []any
	if err := json.Unmarshal(raw, &values); err != nil {
		var one any
		if err := json.Unmarshal(raw, &one); err != nil {
			return err
		}
		values = []any{one}
	}
	*w = nil
	for _, v := range values {
		switch v := v.(type) {
		case string:
			*w = append(*w, v)
		case bool, float64:
			*w = append(*w, fmt.Sprint(v))
		default:
			return fmt.Errorf("%v is neither a text nor a list of texts", v)
		}
	}
	return nil
}

// How many characters policies may have, white space not counted: a managed policy, the inline policies of a user and of a
// role together, and a trust policy.
// https://docs.aws.amazon.com/IAM/latest/UserGuide/reference_iam-quotas.html
const (
	MaxManaged    = 6144
	MaxUserInline = 2048
	MaxRoleInline = 10240
	MaxTrust      = 2048
)

// LimitError says that something exceeds a quota of IAM.
type LimitError string

func (e LimitError) Error() string { return string(e) }

// CheckSize refuses policies that have more characters together.
func CheckSize(most int, what string, documents ...string) error {
	n := 0
	for _, document := range documents {
		for _, r := range document {
			if !unicode.IsSpace(r) {
				n++
			}
		}
	}
	if n > most {
		return LimitError(fmt.Sprintf("Maximum policy size of %d bytes exceeded for %s", most, what))
	}
	return nil
}

// Parse reads a policy. What IAM would refuse is an error, and so is what is not evaluated here.
func Parse(raw []byte) (Policy, error) {
	all, variables, err := statements(raw)
	if err != nil {
		return Policy{}, err
	}
	var p Policy
	ids := map[string]bool{}
	for n, raw := range all {
		s, err := parseStatement(raw, variables)
		if err == nil && s.ID != "" && ids[s.ID] {
			err = fmt.Errorf("the Sid %s is not unique", s.ID)
		}
		if err != nil {
			return Policy{}, fmt.Errorf("statement %d of the policy: %w", n+1, err)
		}
		ids[s.ID] = true
		p.Statements = append(p.Statements, s)
	}
	return p, nil
}

// statements returns the statements of a policy of any kind, and what expands their variables.
func statements(raw []byte) ([]json.RawMessage, expander, error) {
	var doc document
	if err := strict(raw, &doc); err != nil {
		return nil, nil, fmt.Errorf("the policy is not valid: %w", err)
	}
	if bytes.ContainsRune(raw, literal) || bytes.Contains(raw, []byte(`\u0000`)) {
		return nil, nil, errors.New("the policy has a character that IAM does not take")
	}
	variables := map[string]expander{"2012-10-17": expand, "2008-10-17": asWritten}[doc.Version]
	if variables == nil {
		return nil, nil, fmt.Errorf("the policy's version is %q: want 2012-10-17", doc.Version)
	}
	var all []json.RawMessage
	if json.Unmarshal(doc.Statement, &all) != nil {
		all = []json.RawMessage{doc.Statement}
	}
	if len(doc.Statement) == 0 || len(all) == 0 {
		return nil, nil, errors.New("the policy has no statement")
	}
	return all, variables, nil
}

// strict reads one JSON value with no other fields than those of to.
func strict(raw []byte, to any) error {
	dec := json.NewDecoder(bytes.NewReader(raw))
	dec.DisallowUnknownFields()
	if err := dec.Decode(to); err != nil {
		return err
	}
	if dec.More() {
		return errors.New("something follows the JSON value")
	}
	return nil
}

// statementID is what a Sid may be in an identity policy.
var statementID = regexp.MustCompile(`^[0-9A-Za-z]*$`)

func parseStatement(raw []byte, variables expander) (Statement, error) {
	var in statement
	if err := strict(raw, &in); err != nil {
		return Statement{}, err
	}
	s := Statement{ID: in.ID, Deny: in.Effect == "Deny", Actions: in.Action, NotActions: in.NotAction, Resources: in.Resource, NotResource: in.NotResource, expand: variables}
	switch {
	case !statementID.MatchString(in.ID):
		return s, fmt.Errorf("the Sid is %q: want letters and digits", in.ID)
	case in.Effect != "Allow" && in.Effect != "Deny":
		return s, fmt.Errorf("the effect is %q: want Allow or Deny", in.Effect)
	case (len(in.Action) == 0) == (len(in.NotAction) == 0):
		return s, errors.New("it needs either Action or NotAction")
	case (len(in.Resource) == 0) == (len(in.NotResource) == 0):
		return s, errors.New("it needs either Resource or NotResource")
	}
	for _, a := range slices.Concat(in.Action, in.NotAction) {
		if service, name, ok := strings.Cut(a, ":"); a != "*" && (!ok || service == "" || name == "") {
			return s, fmt.Errorf("%q is not an action: want service:action", a)
		}
	}
	for _, r := range slices.Concat(in.Resource, in.NotResource) {
		if r != "*" && len(strings.SplitN(r, ":", 6)) < 6 {
			return s, fmt.Errorf("%q is not the ARN of a resource", r)
		}
	}
	var err error
	s.Conditions, err = parseConditions(in.Condition, variables)
	return s, err
}
