package iam

import (
	"fmt"
	"maps"
	"regexp"
	"slices"

	"github.com/k8s-from-scratch/terraform-provider-k8s/internal/lab/cloud/wire"
)

// Managed is a managed policy of the account. It can be attached to users and roles, and be their permissions
// boundary.
type Managed struct {
	Name     string `json:"name"`
	Path     string `json:"path"`
	ARN      string `json:"arn"`
	Document string `json:"document"`
}

// PutPolicy makes a managed policy, or gives the document to the one with its name and path. An empty path stands
// for "/".
func (d *Directory) PutPolicy(name, path, document string) (Managed, error) {
	if !profileName.MatchString(name) {
		return Managed{}, fmt.Errorf("%q is not a name for a policy", name)
	}
	path, err := checkPath(path)
	if err != nil {
		return Managed{}, err
	}
	if _, err := Parse([]byte(document)); err != nil {
		return Managed{}, err
	}
	if err := CheckSize(MaxManaged, "policy "+name, document); err != nil {
		return Managed{}, err
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	m := Managed{Name: name, Path: path, ARN: d.arn("policy", path, name), Document: document}
	return m, put(d, d.saved.Managed, m.ARN, m)
}

// DeletePolicy deletes a managed policy. ok is false if there is none. One that a user or role has is not deleted.
func (d *Directory) DeletePolicy(arn string) (ok bool, err error) {
	users, roles := d.List()
	for _, u := range users {
		if u.has(arn) {
			return true, fmt.Errorf("user %s has policy %s: detach it first", u.Name, arn)
		}
	}
	for _, r := range roles {
		if r.has(arn) {
			return true, fmt.Errorf("role %s has policy %s: detach it first", r.Name, arn)
		}
	}
	return remove(d, d.saved.Managed, arn)
}

func (e Entity) has(arn string) bool { return e.Boundary == arn || slices.Contains(e.Attached, arn) }

// ManagedPolicies returns the managed policies by ARN.
func (d *Directory) ManagedPolicies() []Managed {
	d.mu.Lock()
	defer d.mu.Unlock()
	return inOrder(d.saved.Managed)
}

// Document returns the document of the managed policy with an ARN.
func (d *Directory) Document(arn string) (document string, ok bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	m, ok := d.saved.Managed[arn]
	return m.Document, ok
}

// PutControls gives the account the service control policies of an organization. They apply to all users and roles,
// the owner included. None allow everything.
func (d *Directory) PutControls(documents []string) error {
	for _, doc := range documents {
		if _, err := Parse([]byte(doc)); err != nil {
			return err
		}
		if err := CheckSize(MaxManaged, "a service control policy", doc); err != nil {
			return err
		}
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	before := d.saved.Controls
	d.saved.Controls = documents
	if err := d.save(); err != nil {
		d.saved.Controls = before
		return err
	}
	return nil
}

// entityPath is what a path may be.
// https://docs.aws.amazon.com/IAM/latest/UserGuide/reference_identifiers.html
var entityPath = regexp.MustCompile(`^(/|/[!-~]+/)$`)

// checkPath completes a path.
func checkPath(path string) (string, error) {
	if path == "" {
		return "/", nil
	}
	if !entityPath.MatchString(path) || len(path) > 512 {
		return "", fmt.Errorf("%q is not a path: it begins and ends with a slash", path)
	}
	return path, nil
}

func (d *Directory) arn(kind, path, name string) string {
	return "arn:" + wire.Partition(d.cfg.Region) + ":iam::" + d.cfg.AccountID + ":" + kind + path + name
}

// PrincipalOf returns the user or role that an ARN names, with all its policies: the ARN of a user, or of a session of a
// role. What does not exist has no policies.
func (d *Directory) PrincipalOf(arn string) Principal {
	p := Principal{ARN: arn, Context: map[string][]string{"aws:PrincipalArn": {arn}, "aws:PrincipalAccount": {d.cfg.AccountID}}}
	d.mu.Lock()
	defer d.mu.Unlock()
	if len(d.saved.Controls) > 0 {
		p.Controls = parsed(d.saved.Controls...)
	}
	e, ok := d.entityOf(arn, p.Context)
	if !ok {
		return p
	}
	for key, value := range e.Tags {
		p.Context["aws:PrincipalTag/"+key] = []string{value}
	}
	p.Policies = parsed(slices.Concat(e.Policies, slices.Collect(maps.Values(e.Inline)))...)
	for _, attached := range e.Attached {
		p.Policies = append(p.Policies, parsed(d.saved.Managed[attached].Document)...)
	}
	if e.Boundary != "" {
		boundary := Policy{} // allows nothing, if it cannot be read
		for _, b := range parsed(d.saved.Managed[e.Boundary].Document) {
			boundary = b
		}
		p.Boundary = &boundary
	}
	return p
}

// entityOf returns the user or role of an ARN, and adds its names to the context. The caller holds mu.
func (d *Directory) entityOf(arn string, context map[string][]string) (Entity, bool) {
	if role := roleName(arn); role != "" {
		r, ok := d.saved.Roles[role]
		context["aws:PrincipalArn"], context["aws:PrincipalType"] = []string{r.ARN}, []string{"AssumedRole"}
		return r.Entity, ok
	}
	for _, u := range d.saved.Users {
		if u.ARN == arn {
			context["aws:username"], context["aws:PrincipalType"] = []string{u.Name}, []string{"User"}
			return u.Entity, true
		}
	}
	return Entity{}, false
}

// parsed returns policies that were checked when they were given.
func parsed(documents ...string) []Policy {
	var out []Policy
	for _, doc := range documents {
		if p, err := Parse([]byte(doc)); err == nil {
			out = append(out, p)
		}
	}
	return out
}
