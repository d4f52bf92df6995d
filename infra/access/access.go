// Package access says who may do what in a cluster: the entries of `access`, the bindings of RBAC that they become,
// and the group of administrators.
//
// Everything here is a pure function. What may not enter: I/O, and how objects are applied, compared and deleted.
package access

import (
	"fmt"
	"slices"
	"strings"

	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/api/validate/content"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/invalid"
)

// Groups of administrators in client certificates.
const (
	// Administrators is bound to the ClusterRole cluster-admin by [AdministratorsBinding], as any other group could be.
	Administrators = "k8s-from-scratch:administrators"
	// Masters may do everything without a binding: an API server asks RBAC nothing about it. So nothing takes that
	// back from a certificate until it expires
	// (https://kubernetes.io/docs/concepts/security/rbac-good-practices/#least-privilege).
	Masters = "system:masters"
)

// Label is on every binding that is made from an entry, by which those of removed entries are found.
const Label = "k8s-from-scratch/access"

// Entry gives a role to a group or a user, in one namespace or in the whole cluster.
type Entry struct {
	Group, User string // one of the two
	// ClusterRole may be given in the whole cluster, or in a namespace. Role is a Role of the namespace. One of the two is set.
	ClusterRole, Role string
	Namespace         string
}

// String names the entry for people: `group "oidc:ops", ClusterRole "view"`.
func (e Entry) String() string {
	kind, subject := e.subject()
	roleKind, role := e.role()
	s := fmt.Sprintf("%s %q, %s %q", strings.ToLower(kind), subject, roleKind, role)
	if e.Namespace != "" {
		s += fmt.Sprintf(" in namespace %q", e.Namespace)
	}
	return s
}

func (e Entry) subject() (kind, name string) {
	if e.User != "" {
		return rbacv1.UserKind, e.User
	}
	return rbacv1.GroupKind, e.Group
}

func (e Entry) role() (kind, name string) {
	if e.Role != "" {
		return "Role", e.Role
	}
	return "ClusterRole", e.ClusterRole
}

// escaped writes what the name of an object may not have. It is reversible, so that different entries have different
// names.
var escaped = strings.NewReplacer("~", "~0", "/", "~1", "%", "~2")

// escapedRole is the same for a role, which in the name of a binding ends with @.
func escapedRole(role string) string { return strings.ReplaceAll(escaped.Replace(role), "@", "~3") }

// Binding returns the ClusterRoleBinding, or in a namespace the RoleBinding. Its name follows from the entry alone:
// "k8s-from-scratch:clusterrole:view@group:oidc:ops".
func (e Entry) Binding() *unstructured.Unstructured {
	kind, subject := e.subject()
	roleKind, role := e.role()
	name := "k8s-from-scratch:" + strings.ToLower(roleKind) + ":" + escapedRole(role) + "@" + strings.ToLower(kind) + ":" + escaped.Replace(subject)
	o := binding(name, roleKind, role, kind, subject)
	o.SetLabels(map[string]string{Label: "entry"})
	if e.Namespace != "" {
		o.SetKind("RoleBinding")
		o.SetNamespace(e.Namespace)
	}
	return o
}

// RoleObject returns the role that the entry gives, without its rules: its kind, namespace and name.
func (e Entry) RoleObject() *unstructured.Unstructured {
	kind, name := e.role()
	o := object(kind, name)
	if kind == "Role" {
		o.SetNamespace(e.Namespace)
	}
	return o
}

func object(kind, name string) *unstructured.Unstructured {
	o := &unstructured.Unstructured{}
	o.SetAPIVersion(rbacv1.SchemeGroupVersion.String())
	o.SetKind(kind)
	o.SetName(name)
	return o
}

func binding(name, roleKind, role, subjectKind, subject string) *unstructured.Unstructured {
	o := object("ClusterRoleBinding", name)
	o.Object["roleRef"] = map[string]any{"apiGroup": rbacv1.GroupName, "kind": roleKind, "name": role}
	o.Object["subjects"] = []any{map[string]any{"apiGroup": rbacv1.GroupName, "kind": subjectKind, "name": subject}}
	return o
}

// AdministratorsBinding gives the group of administrators every permission.
func AdministratorsBinding() *unstructured.Unstructured {
	return binding(Administrators, "ClusterRole", "cluster-admin", rbacv1.GroupKind, Administrators)
}

// Read returns the entry from which a binding was made; false if it was made or changed by somebody else.
func Read(o *unstructured.Unstructured) (Entry, bool) {
	subjects, _, _ := unstructured.NestedSlice(o.Object, "subjects")
	role, _, _ := unstructured.NestedStringMap(o.Object, "roleRef")
	if len(subjects) != 1 {
		return Entry{}, false
	}
	subject, _ := subjects[0].(map[string]any)
	e := Entry{Namespace: o.GetNamespace()}
	name, _ := subject["name"].(string)
	switch subject["kind"] {
	case rbacv1.GroupKind:
		e.Group = name
	case rbacv1.UserKind:
		e.User = name
	}
	switch role["kind"] {
	case "ClusterRole":
		e.ClusterRole = role["name"]
	case "Role":
		e.Role = role["name"]
	}
	same := e.Binding()
	return e, len(Check([]Entry{e})) == 0 && same.GetName() == o.GetName() && same.GetKind() == o.GetKind()
}

// Check reports entries that the API servers would refuse, or that give nothing.
func Check(entries []Entry) (errs invalid.Fields) {
	for i, e := range entries {
		at := fmt.Sprintf("access[%d]", i)
		say := func(field, problem, format string, args ...any) { errs.Say(at+"."+field, problem, format, args...) }
		switch {
		case (e.Group == "") == (e.User == ""):
			say("group", "Who is not clear", "An entry needs either group or user.")
		case (e.ClusterRole == "") == (e.Role == ""):
			say("cluster_role", "Role is not clear", "An entry needs either cluster_role or role.")
		case e.Role != "" && e.Namespace == "":
			say("namespace", "Missing namespace", "A Role is in a namespace: set namespace, or give a cluster_role.")
		case slices.Contains(entries[:i], e):
			errs.Say(at, "Entry given twice", "%s: access[%d] is the same.", e, slices.Index(entries, e))
		}
		if _, subject := e.subject(); strings.TrimSpace(subject) != subject {
			say("group", "Unusable name", "%q begins or ends with a space.", subject)
		}
		if _, role := e.role(); role != "" {
			if reasons := content.IsPathSegmentName(role); len(reasons) > 0 {
				say("role", "Unusable name", "%q is no name of a role: it %s.", role, strings.Join(reasons, ", and "))
			}
		}
		if e.Namespace != "" {
			if reasons := validation.IsDNS1123Label(e.Namespace); len(reasons) > 0 {
				say("namespace", "Unusable name", "%q is no name of a namespace: %s.", e.Namespace, strings.Join(reasons, ", "))
			}
		}
		if why := e.useless(); why != "" {
			errs.Say(at, "Entry without an effect", "%s: %s", e, why)
		}
	}
	return errs
}

// useless says why no role that the entry gives can mean anything; empty if it can.
func (e Entry) useless() string {
	switch {
	case e.Group == Masters:
		return "this group may do everything without a binding, and nothing takes that back. Name a group of your own."
	case e.Group == "system:unauthenticated", e.User == "system:anonymous":
		return "these API servers accept requests without a sign-in only for health checks. Name a group or a user."
	}
	return ""
}

// Warning says what is not obvious about an entry for a group or a user of Kubernetes itself; empty if there is nothing to say.
func (e Entry) Warning() string {
	_, subject := e.subject()
	rest, reserved := strings.CutPrefix(subject, "system:")
	switch {
	case !reserved, strings.HasPrefix(rest, "serviceaccount:"), strings.HasPrefix(rest, "serviceaccounts:"):
		return ""
	case subject == "system:authenticated":
		return "Everybody is in this group whom an API server knows: every person of every issuer, every certificate, and every pod with a token."
	case subject == "system:serviceaccounts":
		return "Every service account is in this group, and so every pod with a token, in all namespaces."
	}
	return "Names that begin with system: are Kubernetes' own: its nodes and programs have them. Check that this entry is for one of these."
}
