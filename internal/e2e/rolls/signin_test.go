package rolls_test

import (
	"bufio"
	"bytes"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"math/big"
	"net"
	"net/http"
	"net/http/cookiejar"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"

	"github.com/k8s-from-scratch/terraform-provider-k8s/internal/e2e/harness"
	"github.com/k8s-from-scratch/terraform-provider-k8s/internal/signin/issuer"
	"github.com/k8s-from-scratch/terraform-provider-k8s/internal/workspace"
)

// login is an issuer of OpenID Connect on a worker, and the browser of somebody who signs in there.
type login struct {
	*world
	url, ca, proxy string
	browser        *http.Client
	kubeconfig     string // of people
}

const issuerPort = "9443"

// testSignIn has the API servers accept an issuer, and people sign in there, and takes the issuer away again. No API
// server is restarted.
func (w *world) testSignIn(t *testing.T) {
	l := w.startIssuer(t)
	example := w.main
	w.main += `
resource "k8s_kubeconfig" "people" {
  control_plane = k8s_control_plane.this.ref
  exec = {
    command = ` + strconv.Quote(filepath.Join(suite.Bin, "k8s-kubeconfig")) + `
    args    = ["sign-in", "-issuer", "` + l.url + `", "-client-id", "` + issuer.ClientID + `", "-device", "-scopes", "openid,groups,offline_access",
      "-ca-file", ` + strconv.Quote(l.caFile(t)) + `, "-cache", ` + strconv.Quote(t.TempDir()) + `]
    env     = { HTTPS_PROXY = "` + l.proxy + `" }
  }
}
output "people" { value = nonsensitive(k8s_kubeconfig.people.kubeconfig_raw) }
`
	w.arguments["k8s_control_plane"]["authentication"] = `{ jwt = [{
    issuer        = { url = "` + l.url + `", audiences = ["` + issuer.ClientID + `"], certificateAuthority = ` + strconv.Quote(l.ca) + ` }
    claimMappings = { username = { claim = "sub", prefix = "oidc:" }, groups = { claim = "groups", prefix = "oidc:" } }
  }] }`
	w.arguments["k8s_control_plane"]["access"] = `[{ group = "oidc:developers", cluster_role = "view" }, { user = "oidc:bob", cluster_role = "edit", namespace = "default" }]`
	was := suite.Units(t, machines...)
	traffic := w.Traffic(t, w.Kubeconfig)
	began := time.Now()
	w.apply(t)
	t.Logf("the apply took %s", time.Since(began).Round(time.Second))
	l.keep(t)

	if who := l.signIn(t, "auth", "whoami"); !strings.Contains(who, "oidc:ada") || !strings.Contains(who, "oidc:developers") {
		t.Errorf("signed in as\n%s", who)
	}
	if _, err := suite.Kubectl(t.Context(), l.kubeconfig, nil, "get", "pods", "--all-namespaces"); err != nil { // the token is kept: nobody has to sign in
		t.Error(err)
	}
	_, err := suite.Kubectl(t.Context(), l.kubeconfig, nil, "create", "namespace", "not-mine")
	harness.Refused(t, err, "Forbidden", `User "oidc:ada" cannot create resource "namespaces"`)

	sign := func(claims string) string { return l.post(t, "/test/sign", "application/json", claims) }
	old := sign(`{"sub": "bob", "groups": ["visitors"]}`)
	l.accepted(t, old, "oidc:bob")
	if _, err := l.as(old, "create", "configmap", "mine", "--dry-run=server"); err != nil {
		t.Error(err)
	}
	_, err = l.as(old, "get", "pods", "--namespace=kube-system")
	harness.Refused(t, err, "Forbidden", `User "oidc:bob" cannot list resource "pods"`)
	l.refused(t, "another audience", sign(`{"sub": "bob", "aud": "another"}`))
	l.refused(t, "expired", sign(`{"sub": "bob", "exp": 1000000000}`))
	l.refused(t, "another issuer", sign(`{"sub": "bob", "iss": "https://login.example.com"}`))
	l.post(t, "/test/rotate", "", "")
	token := sign(`{"sub": "bob"}`) // by the new key
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

// startIssuer starts the issuer on a worker, which controllers reach at every port.
func (w *world) startIssuer(t *testing.T) *login {
	t.Helper()
	dir := t.TempDir()
	if err := workspace.Build(t.Context(), suite.Root, dir, "./internal/signin/issuer/serve"); err != nil {
		t.Fatal(err)
	}
	address := w.Kubectl(t, "get", "node", "worker-0", "-o", `jsonpath={.status.addresses[?(@.type=="InternalIP")].address}`)
	certificate, key := selfSigned(t, address)
	program, err := os.ReadFile(filepath.Join(dir, "serve"))
	if err != nil {
		t.Fatal(err)
	}
	for name, content := range map[string][]byte{"issuer": program, "issuer.crt": certificate, "issuer.key": key} {
		if err := w.Send(t.Context(), "worker-0", bytes.NewReader(content), "sh -c 'cat >/var/tmp/"+name+"'"); err != nil {
			t.Fatal(err)
		}
	}
	at := net.JoinHostPort(address, issuerPort)
	w.Sh(t, "worker-0", "chmod 755 /var/tmp/issuer; systemd-run --quiet --unit=issuer /var/tmp/issuer "+at+" /var/tmp/issuer.crt /var/tmp/issuer.key")
	l := &login{world: w, url: "https://" + at, ca: string(certificate), proxy: "socks5://" + suite.SOCKS(t, w.Addresses["worker-0"], "22", w.HostKeys["worker-0"])}
	proxy, err := url.Parse(l.proxy)
	if err != nil {
		t.Fatal(err)
	}
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(certificate)
	jar, err := cookiejar.New(nil)
	if err != nil {
		t.Fatal(err)
	}
	l.browser = &http.Client{Jar: jar, Timeout: 10 * time.Second, Transport: &http.Transport{Proxy: http.ProxyURL(proxy), TLSClientConfig: &tls.Config{RootCAs: roots, MinVersion: tls.VersionTLS12}}}
	harness.Eventually(t, 20*time.Second, "the issuer answers", func() error {
		_, err := l.ask(t.Context(), http.MethodGet, "/.well-known/openid-configuration", "", "")
		return err
	})
	return l
}

// selfSigned returns a certificate of an address that is its own authority, and its key.
func selfSigned(t *testing.T, address string) (certificate, private []byte) {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{SerialNumber: big.NewInt(1), NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(24 * time.Hour),
		IPAddresses: []net.IP{net.ParseIP(address)}, IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign | x509.KeyUsageDigitalSignature}
	der, err := x509.CreateCertificate(rand.Reader, template, template, &key.PublicKey, key)
	if err != nil {
		t.Fatal(err)
	}
	pkcs8, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		t.Fatal(err)
	}
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}), pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: pkcs8})
}

func (l *login) caFile(t *testing.T) string {
	t.Helper()
	name := filepath.Join(t.TempDir(), "issuer.crt")
	if err := os.WriteFile(name, []byte(l.ca), 0o600); err != nil {
		t.Fatal(err)
	}
	return name
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

// signIn runs kubectl, enters the code that it shows, and returns what it prints.
func (l *login) signIn(t *testing.T, args ...string) string {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, suite.KubectlPath(), append([]string{"--kubeconfig", l.kubeconfig}, args...)...)
	var printed bytes.Buffer
	cmd.Stdout = &printed
	said, err := cmd.StderrPipe()
	if err == nil {
		err = cmd.Start()
	}
	if err != nil {
		t.Fatal(err)
	}
	code := regexp.MustCompile(`^To sign in, open ` + l.url + `/device and enter the code (\S+)$`)
	var all []string
	for lines := bufio.NewScanner(said); lines.Scan(); {
		all = append(all, lines.Text())
		if m := code.FindStringSubmatch(lines.Text()); m != nil {
			form := url.Values{"user_code": {m[1]}, "username": {"ada"}, "password": {issuer.Password}}
			l.post(t, "/device/login", "application/x-www-form-urlencoded", form.Encode())
			if _, err := l.ask(ctx, http.MethodGet, "/device/confirm?action=allowed", "", ""); err != nil {
				t.Error(err)
			}
		}
	}
	if err := cmd.Wait(); err != nil {
		t.Fatalf("kubectl: %v\n%s", err, strings.Join(all, "\n"))
	}
	return printed.String()
}

func (l *login) post(t *testing.T, path, kind, body string) string {
	t.Helper()
	text, err := l.ask(t.Context(), http.MethodPost, path, kind, body)
	if err != nil {
		t.Fatal(err)
	}
	return text
}

func (l *login) ask(ctx context.Context, method, path, kind, body string) (string, error) {
	q, err := http.NewRequestWithContext(ctx, method, l.url+path, strings.NewReader(body))
	if err != nil {
		return "", err
	}
	q.Header.Set("Content-Type", kind)
	r, err := l.browser.Do(q)
	if err != nil {
		return "", err
	}
	defer func() { _ = r.Body.Close() }()
	text, err := io.ReadAll(r.Body)
	if err == nil && r.StatusCode != http.StatusOK {
		err = fmt.Errorf("%s: %s: %s", path, r.Status, text)
	}
	return string(text), err
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
