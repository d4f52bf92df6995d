package pki

import (
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"log/slog"
	"net"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/finding"
)

var now = time.Date(2026, 5, 1, 12, 0, 0, 0, time.UTC)

func newAuthority(t *testing.T, cn string) (KeyPair, *Authority) {
	t.Helper()
	kp, err := NewAuthority(cn, 0, now, rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	a, err := LoadAuthority(kp)
	if err != nil {
		t.Fatal(err)
	}
	return kp, a
}

func kubeletRequest() Request {
	return Request{
		CommonName:    "system:node:worker-0",
		Organizations: []string{"system:nodes"},
		DNSNames:      []string{"worker-0"},
		IPs:           []netip.Addr{netip.MustParseAddr("10.240.0.20"), netip.MustParseAddr("127.0.0.1")},
		Server:        true,
		Client:        true,
	}
}

func TestIssueServesMutualTLS(t *testing.T) {
	caPair, ca := newAuthority(t, "kubernetes-ca")
	leaf, err := ca.Issue(kubeletRequest(), now, rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	pool := x509.NewCertPool()
	pool.AppendCertsFromPEM(caPair.CertPEM)
	cert, err := tls.X509KeyPair(leaf.CertPEM, leaf.KeyPEM)
	if err != nil {
		t.Fatal(err)
	}
	clock := func() time.Time { return now }
	serverEnd, clientEnd := net.Pipe()
	server := tls.Server(serverEnd, &tls.Config{Certificates: []tls.Certificate{cert}, ClientCAs: pool, ClientAuth: tls.RequireAndVerifyClientCert, Time: clock})
	client := tls.Client(clientEnd, &tls.Config{Certificates: []tls.Certificate{cert}, RootCAs: pool, ServerName: "10.240.0.20", Time: clock})
	done := make(chan error, 1)
	go func() { done <- server.HandshakeContext(t.Context()) }()
	if err := client.HandshakeContext(t.Context()); err != nil {
		t.Errorf("client: %v", err)
	}
	if err := <-done; err != nil {
		t.Errorf("server: %v", err)
	}
	if got := server.ConnectionState().PeerCertificates[0].Subject.String(); got != "CN=system:node:worker-0,O=system:nodes" {
		t.Errorf("subject is %s", got)
	}
}

func TestIssueValidity(t *testing.T) {
	caPair, ca := newAuthority(t, "kubernetes-ca")
	caEnd, err := Expiry(caPair.CertPEM)
	if err != nil {
		t.Fatal(err)
	}
	for _, tt := range []struct {
		name     string
		validity time.Duration
		at       time.Time
		want     time.Time
	}{
		{"default", 0, now, now.Add(DefaultValidity)},
		{"asked for", 8 * time.Hour, now, now.Add(8 * time.Hour)},
		{"never longer than the authority", 20 * DefaultCAValidity, now, caEnd},
	} {
		t.Run(tt.name, func(t *testing.T) {
			r := kubeletRequest()
			r.Validity = tt.validity
			kp, err := ca.Issue(r, tt.at, rand.Reader)
			if err != nil {
				t.Fatal(err)
			}
			got, err := Expiry(kp.CertPEM)
			if err != nil {
				t.Fatal(err)
			}
			if !got.Equal(tt.want) {
				t.Errorf("ends %s, wanted %s", got, tt.want)
			}
		})
	}
}

func TestIssueRefuses(t *testing.T) {
	_, ca := newAuthority(t, "kubernetes-ca")
	for _, tt := range []struct {
		name string
		r    Request
		at   time.Time
		want string
	}{
		{"nameless", Request{Client: true}, now, "no common name"},
		{"useless", Request{CommonName: "x"}, now, "neither for servers nor for clients"},
		{"expired authority", kubeletRequest(), now.Add(2 * DefaultCAValidity), "expired"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			_, err := ca.Issue(tt.r, tt.at, rand.Reader)
			if err == nil || !strings.Contains(err.Error(), tt.want) {
				t.Errorf("error is %v, wanted %q", err, tt.want)
			}
		})
	}
}

func TestLoadAuthorityRefuses(t *testing.T) {
	a, ca := newAuthority(t, "a")
	b, _ := newAuthority(t, "b")
	leaf, err := ca.Issue(kubeletRequest(), now, rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	for name, kp := range map[string]KeyPair{
		"another's key":  {CertPEM: a.CertPEM, KeyPEM: b.KeyPEM},
		"a leaf":         leaf,
		"no certificate": {KeyPEM: a.KeyPEM},
		"no key":         {CertPEM: a.CertPEM},
		"broken key":     {CertPEM: a.CertPEM, KeyPEM: encode(pemPrivateKey, []byte("secret"))},
	} {
		if _, err := LoadAuthority(kp); err == nil {
			t.Errorf("%s was accepted", name)
		} else if strings.Contains(err.Error(), "secret") {
			t.Errorf("%s: the error shows the key: %v", name, err)
		}
	}
}

func TestCheck(t *testing.T) {
	caPair, ca := newAuthority(t, "kubernetes-ca")
	other, _ := newAuthority(t, "other-ca")
	leaf, err := ca.Issue(kubeletRequest(), now, rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	early := 60 * 24 * time.Hour
	for _, tt := range []struct {
		name   string
		cert   []byte
		bundle []byte
		at     time.Time
		change func(*Request)
		want   []string
	}{
		{name: "good"},
		{name: "order does not matter", change: func(r *Request) { r.IPs[0], r.IPs[1] = r.IPs[1], r.IPs[0] }},
		{name: "bundle with a second authority", bundle: append(append([]byte{}, caPair.CertPEM...), other.CertPEM...)},
		{name: "the second authority issues no more", bundle: append(append([]byte{}, other.CertPEM...), caPair.CertPEM...),
			want: []string{"issued by kubernetes-ca, wanted other-ca"}},
		{name: "last good second", at: now.Add(DefaultValidity - early - time.Second)},
		{name: "due", at: now.Add(DefaultValidity - early), want: []string{"expires on 2027-05-01T12:00:00Z and is due for renewal since 2027-03-02T12:00:00Z"}},
		{name: "expired", at: now.Add(2 * DefaultValidity), want: []string{"expired on 2027-05-01T12:00:00Z"}},
		{name: "future", at: now.Add(-time.Hour), want: []string{"not valid before 2026-05-01T11:55:00Z"}},
		{name: "another address", change: func(r *Request) { r.IPs = r.IPs[:1] },
			want: []string{`addresses are ["10.240.0.20" "127.0.0.1"], wanted ["10.240.0.20"]`}},
		{name: "another name", change: func(r *Request) { r.CommonName = "system:node:worker-1"; r.DNSNames = []string{"worker-1"} },
			want: []string{`common name is "system:node:worker-0", wanted "system:node:worker-1"`, `DNS names are ["worker-0"], wanted ["worker-1"]`}},
		{name: "another group", change: func(r *Request) { r.Organizations = nil }, want: []string{`organizations are ["system:nodes"], wanted []`}},
		{name: "another authority", bundle: other.CertPEM, want: []string{"issued by kubernetes-ca, wanted other-ca"}},
		{name: "no authority", bundle: []byte("x"), want: []string{"authority: no certificate in PEM form"}},
		{name: "no certificate", cert: []byte("x"), want: []string{"no certificate in PEM form"}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			r := kubeletRequest()
			if tt.change != nil {
				tt.change(&r)
			}
			cert, bundle, at := tt.cert, tt.bundle, tt.at
			if cert == nil {
				cert = leaf.CertPEM
			}
			if bundle == nil {
				bundle = caPair.CertPEM
			}
			if at.IsZero() {
				at = now
			}
			want := ""
			if len(tt.want) > 0 {
				want = "certificate: " + strings.Join(tt.want, ", ")
			}
			if got := finding.Words(Check(cert, bundle, r, at, early)); got != want {
				t.Errorf("%q, wanted %q", got, want)
			}
		})
	}
}

func TestCheckUsage(t *testing.T) {
	caPair, ca := newAuthority(t, "kubernetes-ca")
	r := kubeletRequest()
	r.Server = false
	leaf, err := ca.Issue(r, now, rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	want := []finding.Finding{{Kind: finding.Certificate, Problem: finding.Usage, Wanted: "server"}}
	if diff := cmp.Diff(want, Check(leaf.CertPEM, caPair.CertPEM, kubeletRequest(), now, 0)); diff != "" {
		t.Error(diff)
	}
}

// A certificate that is valid for hours must not be due for renewal when it is issued, whatever the
// renewal window of long-lived ones.
func TestCheckShortLived(t *testing.T) {
	caPair, ca := newAuthority(t, "kubernetes-ca")
	r := kubeletRequest()
	r.Validity = 8 * time.Hour
	leaf, err := ca.Issue(r, now, rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	if found := Check(leaf.CertPEM, caPair.CertPEM, r, now, DefaultEarlyRenewal); len(found) > 0 {
		t.Errorf("due at once: %v", found)
	}
	if found := Check(leaf.CertPEM, caPair.CertPEM, r, now.Add(6*time.Hour), DefaultEarlyRenewal); len(found) != 1 {
		t.Errorf("not due after six of eight hours: %v", found)
	}
}

func TestRedaction(t *testing.T) {
	kp, ca := newAuthority(t, "kubernetes-ca")
	store := NewMemoryStore(map[string]string{"kubernetes-ca.key": string(kp.KeyPEM)})
	ref := Ref{Cluster: "demo", Store: StoreState, Keys: map[string]string{"kubernetes-ca.key": string(kp.KeyPEM)}}
	body := strings.Split(string(kp.KeyPEM), "\n")[1]
	for _, v := range []any{kp, &kp, ca, store, ref, &ref, []Ref{ref}, struct{ K KeyPair }{kp}} {
		for _, verb := range []string{"%v", "%+v", "%#v", "%s", "%q"} {
			if out := fmt.Sprintf(verb, v); strings.Contains(out, body) || strings.Contains(out, "PRIVATE") {
				t.Errorf("%T with %s shows the key: %s", v, verb, out)
			}
		}
	}
	for _, v := range []interface{ LogValue() slog.Value }{kp, ca, store, ref} {
		if out := v.LogValue().String(); strings.Contains(out, body) {
			t.Errorf("%T logs the key: %s", v, out)
		}
	}
}
