package iamapi

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/k8s-from-scratch/terraform-provider-k8s/internal/lab/cloud/iam"
	"github.com/k8s-from-scratch/terraform-provider-k8s/internal/lab/cloud/wire"
)

// What users and roles have in common: policies, boundaries and tags.

// kind is a kind of entity.
type kind struct {
	name      string // "User"
	inline    int    // characters of all inline policies
	parameter func(*entityRequest) string
	look      func(d *iam.Directory, name string) (iam.Entity, bool)
	change    func(d *iam.Directory, name string, f func(*iam.Entity) error) error
}

var (
	ofUser = kind{
		"User", iam.MaxUserInline, func(in *entityRequest) string { return in.UserName },
		func(d *iam.Directory, name string) (iam.Entity, bool) {
			u, ok := d.UserNamed(name)
			return u.Entity, ok
		},
		func(d *iam.Directory, name string, f func(*iam.Entity) error) error {
			return d.ChangeUser(name, func(u *iam.User) error { return f(&u.Entity) })
		},
	}
	ofRole = kind{
		"Role", iam.MaxRoleInline, func(in *entityRequest) string { return in.RoleName },
		func(d *iam.Directory, name string) (iam.Entity, bool) {
			r, ok := d.RoleNamed(name)
			return r.Entity, ok
		},
		func(d *iam.Directory, name string, f func(*iam.Entity) error) error {
			return d.ChangeRole(name, func(r *iam.Role) error { return f(&r.Entity) })
		},
	}
)

// maxAttached is how many managed policies an entity may have.
const maxAttached = 10

type entityRequest struct {
	pages
	tags
	UserName, RoleName             string
	PolicyName, PolicyDocument     string
	PolicyArn, PermissionsBoundary string
	TagKeys                        struct {
		Members []string `query:"member"`
	}
}

type inlineAnswer struct {
	UserName       string `xml:",omitempty"`
	RoleName       string `xml:",omitempty"`
	PolicyName     string
	PolicyDocument string
}

type attachedItem struct {
	Name string `xml:"PolicyName"`
	ARN  string `xml:"PolicyArn"`
}

// entityActions are the actions on one kind of entity.
func entityActions(k kind) map[string]action {
	changes := func(f func(in *entityRequest, e *iam.Entity, known bool) error) action {
		return of(func(s *Service, in *entityRequest) (any, error) {
			name := k.parameter(in)
			if name == "" || in.UserName != "" && in.RoleName != "" {
				return nil, wire.Refuse("ValidationError", "Exactly the name of the %s is needed.", strings.ToLower(k.name))
			}
			_, known := s.Directory.Document(in.PolicyArn + in.PermissionsBoundary)
			err := k.change(s.Directory, name, func(e *iam.Entity) error { return f(in, e, known) })
			return struct{}{}, refusal(err, k.name, name)
		})
	}
	reads := func(f func(in *entityRequest, e iam.Entity) (any, error)) action {
		return of(func(s *Service, in *entityRequest) (any, error) {
			name := k.parameter(in)
			e, ok := k.look(s.Directory, name)
			if !ok {
				return nil, refusal(iam.ErrNone, k.name, name)
			}
			return f(in, e)
		})
	}
	return map[string]action{
		"Put" + k.name + "Policy": changes(func(in *entityRequest, e *iam.Entity, _ bool) error {
			what := fmt.Sprintf("%s %s", strings.ToLower(k.name), k.parameter(in))
			if err := checkDocument(in.PolicyDocument, k.inline, what); err != nil {
				return err
			}
			if in.PolicyName == "" {
				return wire.Refuse("ValidationError", "The policy needs a name.")
			}
			e.Inline[in.PolicyName] = in.PolicyDocument
			return iam.CheckSize(k.inline, what, slices.Collect(maps.Values(e.Inline))...)
		}),
		"Delete" + k.name + "Policy": changes(func(in *entityRequest, e *iam.Entity, _ bool) error {
			if _, ok := e.Inline[in.PolicyName]; !ok {
				return k.noPolicy(in.PolicyName)
			}
			delete(e.Inline, in.PolicyName)
			return nil
		}),
		"Get" + k.name + "Policy": reads(func(in *entityRequest, e iam.Entity) (any, error) {
			document, ok := e.Inline[in.PolicyName]
			if !ok {
				return nil, k.noPolicy(in.PolicyName)
			}
			return inlineAnswer{in.UserName, in.RoleName, in.PolicyName, encoded(document)}, nil
		}),
		"List" + k.name + "Policies": reads(func(in *entityRequest, e iam.Entity) (any, error) {
			names, end, err := cut(in.pages, slices.Sorted(maps.Keys(e.Inline)))
			return struct {
				Names []string `xml:"PolicyNames>member"`
				page
			}{names, end}, err
		}),
		"Attach" + k.name + "Policy": changes(func(in *entityRequest, e *iam.Entity, known bool) error {
			if !known {
				return noSuch("Policy %s does not exist or is not attachable.", in.PolicyArn)
			}
			if slices.Contains(e.Attached, in.PolicyArn) {
				return nil
			}
			if len(e.Attached) >= maxAttached {
				return limitExceeded("Cannot exceed quota for PoliciesPer%s: %d", k.name, maxAttached)
			}
			e.Attached = append(e.Attached, in.PolicyArn)
			return nil
		}),
		"Detach" + k.name + "Policy": changes(func(in *entityRequest, e *iam.Entity, _ bool) error {
			i := slices.Index(e.Attached, in.PolicyArn)
			if i < 0 {
				return noSuch("Policy %s was not found.", in.PolicyArn)
			}
			e.Attached = slices.Delete(e.Attached, i, i+1)
			return nil
		}),
		"ListAttached" + k.name + "Policies": reads(func(in *entityRequest, e iam.Entity) (any, error) {
			var items []attachedItem
			for _, arn := range e.Attached {
				items = append(items, attachedItem{arn[strings.LastIndex(arn, "/")+1:], arn})
			}
			items, end, err := cut(in.pages, items)
			return struct {
				Policies []attachedItem `xml:"AttachedPolicies>member"`
				page
			}{items, end}, err
		}),
		"Put" + k.name + "PermissionsBoundary": changes(func(in *entityRequest, e *iam.Entity, known bool) error {
			if !known {
				return noBoundary(in.PermissionsBoundary)
			}
			e.Boundary = in.PermissionsBoundary
			return nil
		}),
		"Delete" + k.name + "PermissionsBoundary": changes(func(in *entityRequest, e *iam.Entity, _ bool) error {
			if e.Boundary == "" {
				return noSuch("The %s with name %s has no permissions boundary.", strings.ToLower(k.name), k.parameter(in))
			}
			e.Boundary = ""
			return nil
		}),
		"Tag" + k.name: changes(func(in *entityRequest, e *iam.Entity, _ bool) error {
			for key, value := range in.byKey() {
				maps.DeleteFunc(e.Tags, func(other, _ string) bool { return strings.EqualFold(other, key) }) // IAM ignores case in keys
				e.Tags[key] = value
			}
			return nil
		}),
		"Untag" + k.name: changes(func(in *entityRequest, e *iam.Entity, _ bool) error {
			for _, key := range in.TagKeys.Members {
				maps.DeleteFunc(e.Tags, func(other, _ string) bool { return strings.EqualFold(other, key) })
			}
			return nil
		}),
		"List" + k.name + "Tags": reads(func(in *entityRequest, e iam.Entity) (any, error) {
			items, end, err := cut(in.pages, tagItems(e.Tags))
			return struct {
				Tags []tag `xml:"Tags>member"`
				page
			}{items, end}, err
		}),
	}
}

func (k kind) noPolicy(name string) error {
	return noSuch("The %s policy with name %s cannot be found.", strings.ToLower(k.name), name)
}

func noBoundary(arn string) error {
	return noSuch("Scope ARN: %s does not exist or is not attachable.", arn)
}

// made returns the entity that a request makes.
func (s *Service) made(path, boundary string, given tags) (iam.Entity, error) {
	e := iam.Entity{Path: path, Boundary: boundary, Tags: given.byKey()}
	if _, ok := s.Directory.Document(boundary); boundary != "" && !ok {
		return e, noBoundary(boundary)
	}
	return e, nil
}

// unused refuses to delete an entity that has policies.
func unused(e iam.Entity) error {
	if len(e.Attached) > 0 {
		return conflict("detach all policies")
	}
	if len(e.Inline) > 0 {
		return conflict("delete policies")
	}
	return nil
}
