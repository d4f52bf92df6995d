package rolls_test

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"

	"github.com/k8s-from-scratch/terraform-provider-k8s/internal/e2e/harness"
	"github.com/k8s-from-scratch/terraform-provider-k8s/internal/signin/issuer"
)

// login is an issuer of OpenID Connect on a worker, which controllers reach at every port.
type login struct {
	*world
	*harness.Issuer
	kubeconfig string // of people
}

// testSignIn has the API servers accept an issuer, and people sign in there, and takes the issuer away again. No API
// server is restarted.
func (w *world) testSignIn(t *testing.T) {
	address := w.Kubectl(t, "get", "node", "worker-0", "-o", `jsonpath={.status.addresses[?(@.type=="InternalIP")].address}`)
	l := &login{world: w, Issuer: w.StartIssuer(t, "worker-0", address)}
	example := w.main
	w.main += `
resource "k8s_kubeconfig" "people" {
  control_plane = k8s_control_plane.this.ref
  exec = {
    command = ` + strconv.Quote(filepath.Join(suite.Bin, "k8s-kubeconfig")) + `
    args    = ["sign-in", "-issuer", "` + l.URL + `", "-client-id", "` + issuer.ClientID + `", "-device", "-scopes", "openid,groups,offline_access",
      "-ca-file", ` + strconv.Quote(l.CAFile(t)) + `, "-cache", ` + strconv.Quote(t.TempDir()) + `]
    env     = { HTTPS_PROXY = "` + l.Proxy + `" }
  }
}
output "people" { value = nonsensitive(k8s_kubeconfig.people.kubeconfig_raw) }
`
	w.arguments["k8s_control_plane"]["authentication"] = `{ jwt = [{
    issuer        = { url = "` + l.URL + `", audiences = ["` + issuer.ClientID + `"], certificateAuthority = ` + strconv.Quote(l.CA) + ` }
    claimMappings = { username = { claim = "sub", prefix = "oidc:" }, groups = { claim = "groups", prefix = "oidc:" } }
  }] }`
	w.arguments["k8s_control_plane"]["access"] = `[{ group = "oidc:developers", cluster_role = "view" }, { user = "oidc:bob", cluster_role = "edit", namespace = "default" }]`
	was := suite.Units(t, machines...)
	traffic := w.Traffic(t, w.Kubeconfig)
	began := time.Now()
	w.apply(t)
	t.Logf("the apply took %s", time.Since(began).Round(time.Second))
	l.keep(t)

	if who, err := l.SignIn(t, "ada", issuer.Password, l.kubeconfig, nil, "auth", "whoami"); err != nil || !strings.Contains(who, "oidc:ada") || !strings.Contains(who, "oidc:developers") {
		t.Errorf("signed in: %v\n%s", err, who)
	}
	if _, err := suite.Kubectl(t.Context(), l.kubeconfig, nil, "get", "pods", "--all-namespaces"); err != nil { // the token is kept: nobody has to sign in
		t.Error(err)
	}
	_, err := suite.Kubectl(t.Context(), l.kubeconfig, nil, "create", "namespace", "not-mine")
	harness.Refused(t, err, "Forbidden", `User "oidc:ada" cannot create resource "namespaces"`)

	old := l.Sign(t, `{"sub": "bob", "groups": ["visitors"]}`)
	l.accepted(t, old, "oidc:bob")
	if _, err := l.as(old, "create", "configmap", "mine", "--dry-run=server"); err != nil {
		t.Error(err)
	}
	_, err = l.as(old, "get", "pods", "--namespace=kube-system")
	harness.Refused(t, err, "Forbidden", `User "oidc:bob" cannot list resource "pods"`)
	l.refused(t, "another audience", l.Sign(t, `{"sub": "bob", "aud": "another"}`))
	l.refused(t, "expired", l.Sign(t, `{"sub": "bob", "exp": 1000000000}`))
	l.refused(t, "another issuer", l.Sign(t, `{"sub": "bob", "iss": "https://login.example.com"}`))
	l.Rotate(t)
	token := l.Sign(t, `{"sub": "bob"}`) // by the new key
	l.accepted(t, token, "oidc:bob")
	harness.Eventually(t, 30*time.Second, "the former key is no longer accepted", func() error { return l.refuses(old) })

	w.Sh(t, "worker-0", "systemctl stop issuer")
	w.Kubectl(t, "get", "nodes") // with a certificate
	wantRestarted(t, was)
	w.NoChanges(t)

	w.main = example
	delete(w.arguments["k8s_control_plane"], "authentication")
	delete(w.arguments["k8s_control_plane"], "access")
	w.apply(t)
	harness.Eventually(t, 30*time.Second, "the issuer that was taken away is no longer accepted", func() error { return l.refuses(token) })
	traffic.Unbroken(t)
	wantRestarted(t, was)
	w.NoChanges(t)
}

// keep writes the kubeconfig of people to a file. It holds no secret.
func (l *login) keep(t *testing.T) {
	t.Helper()
	var text string
	if err := l.WS.Output(t.Context(), "people", &text); err != nil {
		t.Fatal(err)
	}
	if strings.Contains(text, "client-key-data") || strings.Contains(text, "PRIVATE KEY") {
		t.Error("the kubeconfig of people has a key")
	}
	l.kubeconfig = filepath.Join(t.TempDir(), "people")
	if err := os.WriteFile(l.kubeconfig, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}

// as runs kubectl with a token, through the load balancer.
func (l *login) as(token string, args ...string) (string, error) {
	config, err := clientcmd.LoadFromFile(l.kubeconfig)
	if err != nil {
		return "", err
	}
	for name := range config.AuthInfos {
		config.AuthInfos[name] = &clientcmdapi.AuthInfo{Token: token}
	}
	name := l.kubeconfig + "-token"
	if err := clientcmd.WriteToFile(*config, name); err != nil {
		return "", err
	}
	return suite.Kubectl(context.Background(), name, nil, args...)
}

func (l *login) accepted(t *testing.T, token, name string) {
	t.Helper()
	if who, err := l.as(token, "auth", "whoami"); err != nil || !strings.Contains(who, name) {
		t.Errorf("%v: %s", err, who)
	}
}

func (l *login) refuses(token string) error {
	switch who, err := l.as(token, "auth", "whoami"); {
	case err == nil:
		return errors.New("accepted: " + who)
	case !strings.Contains(err.Error(), "Unauthorized"):
		return err
	}
	return nil
}

func (l *login) refused(t *testing.T, what, token string) {
	t.Helper()
	if err := l.refuses(token); err != nil {
		t.Errorf("%s: %v", what, err)
	}
}
