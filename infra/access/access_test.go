package access_test

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/access"
)

func TestBinding(t *testing.T) {
	for _, tt := range []struct {
		entry              access.Entry
		kind, name, inText string
	}{
		{access.Entry{Group: "oidc:ops", ClusterRole: "view"}, "ClusterRoleBinding", "k8s-from-scratch:clusterrole:view@group:oidc:ops",
			`group "oidc:ops", ClusterRole "view"`},
		{access.Entry{User: "oidc:ada@example.com", ClusterRole: "edit", Namespace: "team-a"}, "RoleBinding", "k8s-from-scratch:clusterrole:edit@user:oidc:ada@example.com",
			`user "oidc:ada@example.com", ClusterRole "edit" in namespace "team-a"`},
		{access.Entry{Group: "oidc:/a~b%", Role: "x@y", Namespace: "team-a"}, "RoleBinding", "k8s-from-scratch:role:x~3y@group:oidc:~1a~0b~2",
			`group "oidc:/a~b%", Role "x@y" in namespace "team-a"`},
	} {
		o := tt.entry.Binding()
		if o.GetKind() != tt.kind || o.GetName() != tt.name || o.GetNamespace() != tt.entry.Namespace || tt.entry.String() != tt.inText {
			t.Errorf("%s: %s %s/%s, wanted %s %s", tt.entry, o.GetKind(), o.GetNamespace(), o.GetName(), tt.kind, tt.name)
		}
		if got, ok := access.Read(o); !ok || got != tt.entry {
			t.Errorf("read back %+v (%t), wanted %+v", got, ok, tt.entry)
		}
	}
}

// TestNames checks that different entries have different names.
func TestNames(t *testing.T) {
	names := map[string]access.Entry{}
	for _, e := range []access.Entry{
		{Group: "a", Role: "b", Namespace: "n"}, {Group: "a", ClusterRole: "b", Namespace: "n"}, {User: "a", Role: "b", Namespace: "n"},
		{Group: "a@group:b", Role: "c", Namespace: "n"}, {Group: "b", Role: "c@group:a", Namespace: "n"},
		{Group: "/", Role: "c", Namespace: "n"}, {Group: "~1", Role: "c", Namespace: "n"}, {Group: "%", Role: "c", Namespace: "n"},
	} {
		name := e.Binding().GetName()
		if other, taken := names[name]; taken {
			t.Errorf("%+v and %+v have the name %s", e, other, name)
		}
		names[name] = e
	}
}

func TestReadForeign(t *testing.T) {
	for name, change := range map[string]func(map[string]any){
		"another role":  func(o map[string]any) { o["roleRef"] = map[string]any{"kind": "ClusterRole", "name": "edit"} },
		"two subjects":  func(o map[string]any) { o["subjects"] = append(o["subjects"].([]any), o["subjects"].([]any)[0]) },
		"an account":    func(o map[string]any) { o["subjects"] = []any{map[string]any{"kind": "ServiceAccount", "name": "x"}} },
		"no subject":    func(o map[string]any) { delete(o, "subjects") },
		"odd subject":   func(o map[string]any) { o["subjects"] = []any{"x"} },
		"no role":       func(o map[string]any) { delete(o, "roleRef") },
		"another scope": func(o map[string]any) { o["kind"] = "RoleBinding" },
	} {
		o := access.Entry{Group: "oidc:ops", ClusterRole: "view"}.Binding()
		change(o.Object)
		if e, ok := access.Read(o); ok {
			t.Errorf("%s: read as %s", name, e)
		}
	}
}

func TestCheck(t *testing.T) {
	ok := access.Entry{Group: "oidc:ops", ClusterRole: "view"}
	for name, tt := range map[string]struct {
		entries []access.Entry
		field   string
		says    string
	}{
		"good":            {[]access.Entry{ok, {User: "oidc:ada", Role: "deployer", Namespace: "team-a"}, {Group: "oidc:ops", ClusterRole: "view", Namespace: "team-a"}}, "", ""},
		"nobody":          {[]access.Entry{{ClusterRole: "view"}}, "access[0].group", "either group or user"},
		"both":            {[]access.Entry{ok, {Group: "a", User: "b", ClusterRole: "view"}}, "access[1].group", "either group or user"},
		"no role":         {[]access.Entry{{Group: "a"}}, "access[0].cluster_role", "either cluster_role or role"},
		"two roles":       {[]access.Entry{{Group: "a", ClusterRole: "b", Role: "c", Namespace: "d"}}, "access[0].cluster_role", "either cluster_role or role"},
		"no namespace":    {[]access.Entry{{Group: "a", Role: "c"}}, "access[0].namespace", "set namespace"},
		"twice":           {[]access.Entry{ok, ok}, "access[1]", `group "oidc:ops", ClusterRole "view": access[0] is the same`},
		"space":           {[]access.Entry{{Group: "oidc:ops ", ClusterRole: "view"}}, "access[0].group", "begins or ends with a space"},
		"path":            {[]access.Entry{{Group: "a", ClusterRole: "x/y"}}, "access[0].role", "may not contain '/'"},
		"namespace":       {[]access.Entry{{Group: "a", ClusterRole: "view", Namespace: "Team A"}}, "access[0].namespace", "lower case"},
		"masters":         {[]access.Entry{{Group: "system:masters", ClusterRole: "view"}}, "access[0]", "nothing takes that back"},
		"unauthenticated": {[]access.Entry{{Group: "system:unauthenticated", ClusterRole: "view"}}, "access[0]", "only for health checks"},
		"anonymous":       {[]access.Entry{{User: "system:anonymous", ClusterRole: "view"}}, "access[0]", "only for health checks"},
	} {
		errs := access.Check(tt.entries)
		if tt.says == "" {
			if len(errs) > 0 {
				t.Errorf("%s: %v", name, errs.Err())
			}
			continue
		}
		if len(errs) != 1 || errs[0].Field != tt.field || !strings.Contains(errs[0].Err.Error(), tt.says) {
			t.Errorf("%s: %v, wanted %s: %s", name, errs.Err(), tt.field, tt.says)
		}
	}
}

func TestWarning(t *testing.T) {
	warned := map[string]bool{}
	for _, e := range []access.Entry{
		{Group: "oidc:ops"}, {Group: "system:authenticated"}, {Group: "system:serviceaccounts"}, {Group: "system:serviceaccounts:team-a"},
		{User: "system:serviceaccount:team-a:ci"}, {Group: "system:nodes"}, {User: "system:kube-scheduler"}, {Group: access.Administrators},
	} {
		warned[e.Group+e.User] = e.Warning() != ""
	}
	if diff := cmp.Diff(map[string]bool{
		"oidc:ops": false, "system:authenticated": true, "system:serviceaccounts": true, "system:serviceaccounts:team-a": false,
		"system:serviceaccount:team-a:ci": false, "system:nodes": true, "system:kube-scheduler": true, access.Administrators: false,
	}, warned); diff != "" {
		t.Error(diff)
	}
}

func TestAdministratorsBinding(t *testing.T) {
	o := access.AdministratorsBinding()
	role, _ := o.Object["roleRef"].(map[string]any)
	if o.GetName() != access.Administrators || role["name"] != "cluster-admin" || len(o.GetLabels()) > 0 {
		t.Errorf("%v", o.Object)
	}
}
