package rolls_test

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/k8s-from-scratch/terraform-provider-k8s/internal/e2e/harness"
)

// testAccess gives a certificate's group and user their roles, repairs their bindings, and takes the roles away from a
// kubeconfig that is still valid. No API server is restarted.
func (w *world) testAccess(t *testing.T) {
	const (
		edit   = "k8s-from-scratch:clusterrole:edit@group:ci"
		view   = "k8s-from-scratch:clusterrole:view@user:ci"
		admins = "k8s-from-scratch:administrators"
	)
	example, was := w.main, suite.Units(t, machines...)
	w.main += `
resource "k8s_kubeconfig" "ci" {
  control_plane = k8s_control_plane.this.ref
  user          = "ci"
  groups        = ["ci"]
}
output "ci" {
  value     = k8s_kubeconfig.ci.kubeconfig_raw
  sensitive = true
}
`
	apply := func(entries ...string) string {
		t.Helper()
		w.arguments["k8s_control_plane"]["access"] = "[" + strings.Join(entries, ", ") + "]"
		w.write(t)
		said, err := w.WS.Apply(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		w.NoChanges(t)
		return said
	}
	ofGroup, ofUser := `{ group = "ci", cluster_role = "edit", namespace = "team-a" }`, `{ user = "ci", cluster_role = "view" }`
	// The namespace is made later, as it is by everything that needs the control plane.
	harness.Says(t, apply(ofGroup, ofUser, `{ group = "ci", cluster_role = "none-such" }`), `access of group "ci", ClusterRole "edit" in namespace "team-a": waits for Namespace team-a`,
		`access of group "ci", ClusterRole "none-such": gives nothing while ClusterRole none-such does not exist`)
	w.Kubectl(t, "create", "namespace", "team-a")
	defer w.Kubectl(t, "delete", "namespace", "team-a", "--wait=false")
	repaired := func(what string, drift ...string) {
		t.Helper()
		changes, text, err := w.WS.Plan(t.Context())
		if err != nil || !changes {
			t.Fatalf("%s: no change is planned: %v", what, err)
		}
		harness.Says(t, text, drift...)
		apply(ofGroup, ofUser)
	}
	repaired("a namespace that exists now", `"RoleBinding team-a/`+edit+`"`, "missing")
	t.Log(w.Kubectl(t, "get", "clusterrolebindings,rolebindings", "--all-namespaces", "--selector=k8s-from-scratch/access"))

	stolen := filepath.Join(t.TempDir(), "stolen")
	var text string
	if err := w.WS.Output(t.Context(), "ci", &text); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(stolen, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	thief := func(args ...string) error {
		_, err := suite.Kubectl(t.Context(), stolen, nil, args...)
		return err
	}
	for _, args := range [][]string{{"create", "configmap", "mine", "--namespace=team-a"}, {"get", "pods", "--all-namespaces"}} {
		if err := thief(args...); err != nil {
			t.Error(err)
		}
	}
	harness.Refused(t, thief("create", "configmap", "mine", "--namespace=default"), "forbidden", `User "ci" cannot create resource "configmaps"`)

	w.Kubectl(t, "delete", "rolebinding", "--namespace=team-a", edit)
	w.Kubectl(t, "patch", "clusterrolebinding", view, "--type=json", `--patch=[{"op": "add", "path": "/subjects/-", "value": {"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": "eve"}}]`)
	w.Kubectl(t, "create", "clusterrolebinding", "smuggled", "--clusterrole=cluster-admin", "--group=ci")
	w.Kubectl(t, "label", "clusterrolebinding", "smuggled", "k8s-from-scratch/access=entry")
	repaired("bindings that somebody has deleted, edited and made", `"RoleBinding team-a/`+edit+`"`, `"ClusterRoleBinding `+view+`"`, "subjects", `"ClusterRoleBinding smuggled"`, "exists, not wanted any more")
	harness.Refused(t, thief("create", "configmap", "other", "--namespace=default"), "forbidden")

	// The entry is removed, and somebody has made its binding look like another's.
	w.Kubectl(t, "label", "rolebinding", "--namespace=team-a", edit, "k8s-from-scratch/access-")
	apply(ofUser)
	ended := time.Now()
	harness.Eventually(t, time.Minute, "the stolen kubeconfig is refused", func() error {
		switch err := thief("delete", "configmap", "mine", "--namespace=team-a", "--dry-run=server"); {
		case err == nil:
			return errors.New("accepted")
		case !strings.Contains(err.Error(), "Forbidden"):
			return err
		}
		return nil
	})
	t.Logf("refused %s after the apply", time.Since(ended).Round(time.Millisecond))
	if err := thief("get", "pods", "--all-namespaces"); err != nil { // its other entry
		t.Error(err)
	}

	// An administrator can be without a binding, and the provider works.
	harness.Says(t, w.Kubectl(t, "auth", "whoami"), admins)
	w.Kubectl(t, "delete", "clusterrolebinding", admins)
	harness.Eventually(t, 10*time.Second, "administrators have no binding", func() error {
		if _, err := suite.Kubectl(t.Context(), w.Kubeconfig, nil, "get", "nodes"); err == nil {
			return errors.New("accepted")
		}
		return nil
	})
	delete(w.arguments["k8s_control_plane"], "access")
	w.main = example
	w.apply(t)
	harness.Eventually(t, 10*time.Second, "administrators have their binding again", func() error {
		_, err := suite.Kubectl(t.Context(), w.Kubeconfig, nil, "get", "nodes")
		return err
	})
	if left := w.Kubectl(t, "get", "clusterrolebindings,rolebindings", "--all-namespaces", "--selector=k8s-from-scratch/access"); left != "" {
		t.Errorf("bindings are left:\n%s", left)
	}
	wantRestarted(t, was)
	w.NoChanges(t)
}
