package harness

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
	"strings"
	"testing"
	"time"

	"github.com/k8s-from-scratch/terraform-provider-k8s/internal/workspace"
)

const issuerPort = "9443"

// Issuer is an issuer of OpenID Connect on a machine, and the browser of somebody who signs in there.
type Issuer struct {
	URL, CA string
	Proxy   string // through which people reach it

	suite   *Suite
	browser *http.Client
}

// StartIssuer starts an issuer on a machine with a private address, where API servers reach it.
func (c *Cluster) StartIssuer(t *testing.T, machine, address string) *Issuer {
	t.Helper()
	dir := t.TempDir()
	if err := workspace.Build(t.Context(), c.suite.Root, dir, "./internal/signin/issuer/serve"); err != nil {
		t.Fatal(err)
	}
	certificate, key := SelfSigned(t, address)
	program, err := os.ReadFile(filepath.Join(dir, "serve"))
	if err != nil {
		t.Fatal(err)
	}
	for name, content := range map[string][]byte{"issuer": program, "issuer.crt": certificate, "issuer.key": key} {
		if err := c.Send(t.Context(), machine, bytes.NewReader(content), "sh -c 'cat >/var/tmp/"+name+"'"); err != nil {
			t.Fatal(err)
		}
	}
	at := net.JoinHostPort(address, issuerPort)
	c.Sh(t, machine, "chmod 755 /var/tmp/issuer; systemd-run --quiet --unit=issuer /var/tmp/issuer "+at+" /var/tmp/issuer.crt /var/tmp/issuer.key")
	i := &Issuer{URL: "https://" + at, CA: string(certificate), Proxy: "socks5://" + c.suite.SOCKS(t, c.Addresses[machine], "22", c.HostKeys[machine]), suite: c.suite}
	proxy, err := url.Parse(i.Proxy)
	if err != nil {
		t.Fatal(err)
	}
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(certificate)
	jar, err := cookiejar.New(nil)
	if err != nil {
		t.Fatal(err)
	}
	i.browser = &http.Client{Jar: jar, Timeout: 10 * time.Second, Transport: &http.Transport{Proxy: http.ProxyURL(proxy), TLSClientConfig: &tls.Config{RootCAs: roots, MinVersion: tls.VersionTLS12}}}
	Eventually(t, 20*time.Second, "the issuer answers", func() error {
		_, err := i.ask(t.Context(), http.MethodGet, "/.well-known/openid-configuration", "", "")
		return err
	})
	return i
}

// SelfSigned returns a certificate of an address that is its own authority, and its key.
func SelfSigned(t *testing.T, address string) (certificate, private []byte) {
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

// CAFile writes the certificate of the issuer to a file.
func (i *Issuer) CAFile(t *testing.T) string {
	t.Helper()
	name := filepath.Join(t.TempDir(), "issuer.crt")
	if err := os.WriteFile(name, []byte(i.CA), 0o600); err != nil {
		t.Fatal(err)
	}
	return name
}

// SignIn runs kubectl in the directory of its kubeconfig, with more variables of the environment. It enters the code that kubectl
// shows as a person, and returns what kubectl prints.
func (i *Issuer) SignIn(t *testing.T, person, password, kubeconfig string, env []string, args ...string) (string, error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, i.suite.KubectlPath(), append([]string{"--kubeconfig", kubeconfig}, args...)...)
	cmd.Dir, cmd.Env = filepath.Dir(kubeconfig), append(os.Environ(), env...)
	var printed bytes.Buffer
	cmd.Stdout = &printed
	said, err := cmd.StderrPipe()
	if err == nil {
		err = cmd.Start()
	}
	if err != nil {
		return "", err
	}
	code := regexp.MustCompile(`^To sign in, open ` + i.URL + `/device and enter the code (\S+)$`)
	var all []string
	for lines := bufio.NewScanner(said); lines.Scan(); {
		all = append(all, lines.Text())
		if m := code.FindStringSubmatch(lines.Text()); m != nil {
			form := url.Values{"user_code": {m[1]}, "username": {person}, "password": {password}}
			i.post(t, "/device/login", "application/x-www-form-urlencoded", form.Encode())
			if _, err := i.ask(ctx, http.MethodGet, "/device/confirm?action=allowed", "", ""); err != nil {
				t.Error(err)
			}
		}
	}
	if err := cmd.Wait(); err != nil {
		return "", fmt.Errorf("kubectl: %w\n%s", err, strings.Join(all, "\n"))
	}
	return printed.String(), nil
}

// Sign returns a token with any claims.
func (i *Issuer) Sign(t *testing.T, claims string) string {
	t.Helper()
	return i.post(t, "/test/sign", "application/json", claims)
}

// Rotate has the issuer sign with a new key.
func (i *Issuer) Rotate(t *testing.T) {
	t.Helper()
	i.post(t, "/test/rotate", "", "")
}

func (i *Issuer) post(t *testing.T, path, kind, body string) string {
	t.Helper()
	text, err := i.ask(t.Context(), http.MethodPost, path, kind, body)
	if err != nil {
		t.Fatal(err)
	}
	return text
}

func (i *Issuer) ask(ctx context.Context, method, path, kind, body string) (string, error) {
	q, err := http.NewRequestWithContext(ctx, method, i.URL+path, strings.NewReader(body))
	if err != nil {
		return "", err
	}
	q.Header.Set("Content-Type", kind)
	r, err := i.browser.Do(q)
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
