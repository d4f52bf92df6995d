package topologies_test

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/k8s-from-scratch/terraform-provider-k8s/internal/e2e/harness"
	"github.com/k8s-from-scratch/terraform-provider-k8s/internal/signin/issuer"
)

// testMember makes one more cluster in a workspace of its own, as a user who is bound to it.
func (l *class) testMember(t *testing.T) {
	own := suite.Cluster(suite.Workspace(t, "classroom-dee", suite.CLI, filepath.Join(suite.Root, "examples", "classroom")))
	mine := class{Cluster: own, api: l.api, dir: l.dir, settings: map[string]any{}}
	suite.Bind(t, own.WS, "dee")
	if _, err := own.WS.Run(t.Context(), "workspace", "new", "dee"); err != nil {
		t.Fatal(err)
	}
	mine.apply(t, "students", map[string]any{"ada": map[string]any{}, "dee": map[string]any{"size": "one"}})
	mine.NoChanges(t)
	if len(mine.endpoints) != 1 || mine.endpoints["dee"] == "" {
		t.Errorf("endpoints %v", mine.endpoints)
	}
	mine.give(t)
	mine.may(t, "dee", "get", "nodes")
	mine.testIssuer(t)
	if _, err := own.WS.Destroy(t.Context()); err != nil {
		t.Fatal(err)
	}
	l.NoChanges(t)
}

// testIssuer has Dee sign in at the school's issuer, which knows her by the address of bob. What she has is refused once she is
// locked out.
func (l *class) testIssuer(t *testing.T) {
	address := l.may(t, "dee", "get", "nodes", `--output=jsonpath={.items[0].status.addresses[?(@.type=="InternalIP")].address}`)
	l.root(t, "dee", "controller-0", "true") // learns its address
	school := l.StartIssuer(t, "controller-0", address)
	certificate := l.stolen(t, l.kubeconfig("dee"), "dee")
	l.set(t, "students", map[string]any{"ada": map[string]any{}, "dee": map[string]any{"size": "one", "sign_in": "bob@example.com"}})
	l.apply(t, "issuer", map[string]any{"url": school.URL, "client_id": issuer.ClientID, "username": "email", "ca": school.CA, "args": []string{"-device", "-cache", t.TempDir()}})
	l.NoChanges(t)
	l.give(t)
	if text := l.read(t, "class/dee/kubeconfig"); strings.Contains(text, "client-key-data") || !strings.Contains(text, "sign-in") {
		t.Errorf("the kubeconfig is\n%s", text)
	}
	t.Log(l.read(t, "class/dee/README.md"))
	env := []string{"PATH=" + suite.Bin + ":" + os.Getenv("PATH"), "HTTPS_PROXY=" + school.Proxy, "NO_PROXY=" + l.address(t, "dee")}
	had := filepath.Join(t.TempDir(), "dee") // the tokens are in the cache
	if err := os.CopyFS(had, os.DirFS(l.desk("dee"))); err != nil {
		t.Fatal(err)
	}
	kubectl := func(args ...string) (string, error) {
		return school.SignIn(t, "bob", issuer.Password, filepath.Join(had, "kubeconfig"), env, args...)
	}
	if who, err := kubectl("auth", "whoami"); err != nil || !strings.Contains(who, "school:bob@example.com") {
		t.Fatalf("signed in: %v\n%s", err, who)
	}
	if _, err := kubectl("create", "configmap", "mine"); err != nil {
		t.Error(err)
	}
	_, err := kubectl("get", "secrets", "--namespace=kube-system")
	harness.Refused(t, err, "Forbidden", `User "school:bob@example.com"`)
	as := func(token string) error {
		_, err := suite.Kubectl(t.Context(), "/dev/null", nil, "--server="+l.endpoints["dee"], "--insecure-skip-tls-verify", "--token="+token, "get", "pods")
		return err
	}
	if err := as(school.Sign(t, `{"sub": "1", "email": "bob@example.com", "email_verified": true}`)); err != nil {
		t.Error(err)
	}
	for _, claims := range []string{`{"sub": "1", "email": "bob@example.com", "email_verified": false}`, `{"sub": "1", "email": "bob@example.com"}`, `{"sub": "bob@example.com"}`} {
		harness.Refused(t, as(school.Sign(t, claims)), "Unauthorized") // somebody may have entered another student's address
	}
	harness.Refused(t, as(school.Sign(t, `{"sub": "bob", "email": "ada@example.com", "email_verified": true}`)), "Forbidden", `User "school:ada@example.com"`) // another student
	_, err = suite.Kubectl(t.Context(), certificate, nil, "get", "pods")
	harness.Refused(t, err, "Forbidden", `User "dee"`) // no certificate has rights any more
	l.apply(t, "locked_out", []string{"dee"})
	began := time.Now()
	harness.Eventually(t, time.Minute, "what Dee has is refused", func() error {
		if _, err := kubectl("get", "pods"); err == nil || !strings.Contains(err.Error(), "Forbidden") {
			return fmt.Errorf("kubectl get pods: %w", err)
		}
		return nil
	})
	t.Logf("refused %s after the apply", time.Since(began).Round(time.Second))
	l.NoChanges(t)
}
