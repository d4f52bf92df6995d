package pki

import (
	"crypto"
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/rsa"
	"crypto/sha1"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/asn1"
	"encoding/pem"
	"errors"
	"fmt"
	"math/big"
	"net"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/invalid"
)

// company is a certificate with its key; above is what has issued it, the next one first.
type company struct {
	cert  *x509.Certificate
	key   crypto.Signer
	above []company
}

func ecKey(t *testing.T, curve elliptic.Curve) crypto.Signer {
	t.Helper()
	key, err := ecdsa.GenerateKey(curve, rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	return key
}

func rsaKey(t *testing.T, bits int) crypto.Signer {
	t.Helper()
	t.Setenv("GODEBUG", "rsa1024min=0")
	key, err := rsa.GenerateKey(rand.Reader, bits)
	if err != nil {
		t.Fatal(err)
	}
	return key
}

// authority makes one; a nil issuer is itself. change may change the template.
func authority(t *testing.T, name string, issuer *company, key crypto.Signer, change func(*x509.Certificate)) company {
	t.Helper()
	template := &x509.Certificate{
		SerialNumber: big.NewInt(time.Now().UnixNano()), Subject: pkix.Name{CommonName: name}, NotBefore: now.Add(-time.Hour), NotAfter: now.AddDate(3, 0, 0),
		KeyUsage: x509.KeyUsageCertSign | x509.KeyUsageCRLSign, BasicConstraintsValid: true, IsCA: true,
	}
	if change != nil {
		change(template)
	}
	out := company{key: key}
	parent, by := template, key
	if issuer != nil {
		parent, by = issuer.cert, issuer.key
		out.above = append([]company{*issuer}, issuer.above...)
	}
	der, err := x509.CreateCertificate(rand.Reader, template, parent, key.Public(), by)
	if err != nil {
		t.Fatal(err)
	}
	if out.cert, err = x509.ParseCertificate(der); err != nil {
		t.Fatal(err)
	}
	return out
}

func (c company) pem() []byte { return encode(pemCertificate, c.cert.Raw) }

func (c company) chain() (out []byte) {
	for _, a := range c.above {
		out = append(out, a.pem()...)
	}
	return out
}

func (c company) keyPEM(t *testing.T) []byte {
	t.Helper()
	der, err := x509.MarshalPKCS8PrivateKey(c.key)
	if err != nil {
		t.Fatal(err)
	}
	return encode(pemPrivateKey, der)
}

func (c company) given(t *testing.T) Given {
	return Given{KeyPair: KeyPair{CertPEM: c.pem(), KeyPEM: c.keyPEM(t)}, ChainPEM: c.chain()}
}

// signedWithSHA1 returns the certificate with a signature of SHA-1, which crypto/x509 does not make.
func signedWithSHA1(t *testing.T, c company, issuer company) *x509.Certificate {
	t.Helper()
	type certificate struct {
		TBS       asn1.RawValue
		Algorithm pkix.AlgorithmIdentifier
		Signature asn1.BitString
	}
	algorithm := pkix.AlgorithmIdentifier{Algorithm: asn1.ObjectIdentifier{1, 2, 840, 113549, 1, 1, 5}, Parameters: asn1.NullRawValue}
	old, err := asn1.Marshal(pkix.AlgorithmIdentifier{Algorithm: asn1.ObjectIdentifier{1, 2, 840, 113549, 1, 1, 11}, Parameters: asn1.NullRawValue})
	if err != nil {
		t.Fatal(err)
	}
	other, err := asn1.Marshal(algorithm)
	if err != nil {
		t.Fatal(err)
	}
	tbs := []byte(strings.Replace(string(c.cert.RawTBSCertificate), string(old), string(other), 1))
	sum := sha1.Sum(tbs)
	signature, err := issuer.key.Sign(rand.Reader, sum[:], crypto.SHA1)
	if err != nil {
		t.Fatal(err)
	}
	der, err := asn1.Marshal(certificate{asn1.RawValue{FullBytes: tbs}, algorithm, asn1.BitString{Bytes: signature, BitLength: 8 * len(signature)}})
	if err != nil {
		t.Fatal(err)
	}
	cert, err := x509.ParseCertificate(der)
	if err != nil {
		t.Fatal(err)
	}
	return cert
}

// said returns "field: error" of every error.
func said(errs invalid.Fields) string {
	var out []string
	for _, e := range errs {
		out = append(out, e.Error())
	}
	return strings.Join(out, "\n")
}

func TestCheckAuthority(t *testing.T) {
	root := authority(t, "Example Root", nil, rsaKey(t, 2048), nil)
	policy := authority(t, "Example Policy", &root, ecKey(t, elliptic.P384()), nil)
	narrow := authority(t, "Example Narrow", &root, ecKey(t, elliptic.P256()), func(c *x509.Certificate) { c.MaxPathLenZero = true })
	fenced := authority(t, "Example Fenced", &root, ecKey(t, elliptic.P256()), func(c *x509.Certificate) {
		c.PermittedDNSDomainsCritical, c.PermittedDNSDomains = true, []string{"example.com"}
	})
	other := ecKey(t, elliptic.P256())
	below := func(issuer company, change func(*x509.Certificate)) company {
		return authority(t, "Cluster CA", &issuer, ecKey(t, elliptic.P256()), change)
	}
	plain := below(root, func(c *x509.Certificate) { c.MaxPathLenZero = true })
	long := rsaKey(t, 2048)
	sec1, err := x509.MarshalECPrivateKey(plain.key.(*ecdsa.PrivateKey))
	if err != nil {
		t.Fatal(err)
	}
	with := func(g Given, change func(*Given)) Given { change(&g); return g }
	sha1CA := authority(t, "Cluster CA", &root, long, func(c *x509.Certificate) { c.SignatureAlgorithm = x509.SHA256WithRSA })
	sha1CA.cert = signedWithSHA1(t, sha1CA, root)
	oldRoot := root
	oldRoot.cert = signedWithSHA1(t, root, root)

	for _, test := range []struct {
		name  string
		kind  Kind
		given Given
		want  string // "" if it is good
	}{
		{"an intermediate", KindKubernetesCA, plain.given(t), ""},
		{"an intermediate of an intermediate", KindKubernetesCA, below(policy, nil).given(t), ""},
		{"an intermediate for etcd", KindEtcdCA, Given{KeyPair: plain.given(t).KeyPair}, ""},
		{"an intermediate for the front proxy", KindFrontProxyCA, Given{KeyPair: plain.given(t).KeyPair}, ""},
		{"a root", KindKubernetesCA, root.given(t), ""},
		{"below a root of old", KindKubernetesCA, below(oldRoot, nil).given(t), ""},
		{"without a key", KindKubernetesCA, with(plain.given(t), func(g *Given) { g.KeyPEM = nil }), ""},
		{"with words before it", KindKubernetesCA, with(plain.given(t), func(g *Given) { g.CertPEM = append([]byte("subject=CN = Cluster CA\n"), g.CertPEM...) }), ""},
		{"RSA, PKCS #1", KindKubernetesCA, with(authority(t, "Cluster CA", &root, long, nil).given(t), func(g *Given) {
			g.KeyPEM = encode("RSA PRIVATE KEY", x509.MarshalPKCS1PrivateKey(long.(*rsa.PrivateKey)))
		}), ""},
		{"SEC 1, with parameters", KindKubernetesCA, with(plain.given(t), func(g *Given) {
			g.KeyPEM = append(encode("EC PARAMETERS", []byte{6, 8, 42, 134, 72, 206, 61, 3, 1, 7}), encode("EC PRIVATE KEY", sec1)...)
		}), ""},

		{"no certificate", KindEtcdCA, Given{KeyPair: KeyPair{CertPEM: []byte("hello")}}, "certificate_pem: no certificate in PEM form"},
		{"two certificates", KindKubernetesCA, with(plain.given(t), func(g *Given) { g.CertPEM = append(g.CertPEM, g.ChainPEM...) }), "certificate_pem: there are 2 certificates: give only that of the authority"},
		{"a key beside it", KindKubernetesCA, with(plain.given(t), func(g *Given) { g.CertPEM = append(g.CertPEM, g.KeyPEM...) }), "certificate_pem: there is a private key beside the certificate"},
		{"no authority", KindKubernetesCA, below(root, func(c *x509.Certificate) { c.IsCA = false }).given(t), "certificate_pem: authority Cluster CA: the certificate is not one of a certificate authority"},
		{"key usage", KindKubernetesCA, below(root, func(c *x509.Certificate) { c.KeyUsage = x509.KeyUsageDigitalSignature }).given(t), "certificate_pem: authority Cluster CA: its key usage does not allow"},
		{"expired", KindEtcdCA, below(root, func(c *x509.Certificate) { c.NotAfter = now.Add(-time.Minute) }).given(t), "it expired on 2026-05-01T11:59:00Z"},
		{"expires soon", KindKubernetesCA, below(root, func(c *x509.Certificate) { c.NotAfter = now.Add(23 * time.Hour) }).given(t), "it expires on 2026-05-02T11:00:00Z. Certificates cannot outlive it, so at least 24h must be left"},
		{"not yet valid", KindKubernetesCA, below(root, func(c *x509.Certificate) { c.NotBefore = now.Add(time.Hour) }).given(t), "it is valid only from 2026-05-01T13:00:00Z on"},
		{"no key identifier", KindKubernetesCA, Given{KeyPair: KeyPair{CertPEM: withoutKeyID(t, root)}}, "certificate_pem: authority Example Root: it has no subject key identifier"},
		{"SHA-1", KindKubernetesCA, sha1CA.given(t), "it is signed with SHA1-RSA"},
		{"a weak key", KindKubernetesCA, authority(t, "Cluster CA", &root, rsaKey(t, 1024), nil).given(t), "its RSA key has 1024 bits: at least 2048, and at most 4096"},
		{"a weak curve", KindKubernetesCA, authority(t, "Cluster CA", &root, ecKey(t, elliptic.P224()), nil).given(t), "its key is on another curve than P-256"},
		{"Ed25519", KindKubernetesCA, authority(t, "Cluster CA", &root, ed25519.NewKeyFromSeed(make([]byte, 32)), nil).given(t), "its key is neither RSA nor ECDSA"},
		{"a critical extension", KindEtcdCA, below(root, func(c *x509.Certificate) {
			c.ExtraExtensions = []pkix.Extension{{Id: asn1.ObjectIdentifier{1, 2, 3}, Critical: true, Value: []byte{5, 0}}}
		}).given(t), "do not know: 1.2.3"},
		{"only for servers", KindKubernetesCA, below(root, func(c *x509.Certificate) { c.ExtKeyUsage = []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth} }).given(t), "does not allow certificates of clients"},
		{"only for clients", KindEtcdCA, below(root, func(c *x509.Certificate) { c.ExtKeyUsage = []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth} }).given(t), "does not allow certificates of servers"},
		{"only for clients, front proxy", KindFrontProxyCA, Given{KeyPair: below(root, func(c *x509.Certificate) {
			c.ExtKeyUsage = []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth}
		}).given(t).KeyPair}, ""},
		{"names", KindKubernetesCA, below(root, func(c *x509.Certificate) {
			c.PermittedDNSDomainsCritical, c.PermittedDNSDomains = true, []string{"example.com"}
		}).given(t), `certificate_pem: authority Cluster CA may not issue what a cluster needs: x509: a root or intermediate certificate is not authorized to sign for this name: DNS name "kubernetes"`},
		{"addresses", KindEtcdCA, below(root, func(c *x509.Certificate) {
			c.PermittedIPRanges = []*net.IPNet{{IP: net.IP{10, 0, 0, 0}, Mask: net.CIDRMask(8, 32)}}
		}).given(t), "127.0.0.1"},

		{"no chain", KindKubernetesCA, with(plain.given(t), func(g *Given) { g.ChainPEM = nil }), "chain_pem: CN=Example Root has issued authority Cluster CA: give the certificates above"},
		{"a chain for etcd", KindEtcdCA, plain.given(t), "chain_pem: only the chain of the Kubernetes CA is used"},
		{"a chain above a root", KindKubernetesCA, with(root.given(t), func(g *Given) { g.ChainPEM = g.CertPEM }), "chain_pem: authority Example Root is a root"},
		{"another chain", KindKubernetesCA, with(plain.given(t), func(g *Given) { g.ChainPEM = policy.pem() }), "chain_pem: Example Policy has not issued Cluster CA"},
		{"a chain without its root", KindKubernetesCA, with(below(policy, nil).given(t), func(g *Given) { g.ChainPEM = policy.pem() }), "chain_pem: it ends with Example Policy, which CN=Example Root has issued"},
		{"a chain in another order", KindKubernetesCA, with(below(policy, nil).given(t), func(g *Given) { g.ChainPEM = append(root.pem(), policy.pem()...) }), "chain_pem: Example Root has not issued Cluster CA"},
		{"a key in the chain", KindKubernetesCA, with(plain.given(t), func(g *Given) { g.ChainPEM = append(g.ChainPEM, g.KeyPEM...) }), "chain_pem: there is a private key"},
		{"below a path that is too short", KindKubernetesCA, below(narrow, nil).given(t), "chain_pem: authority Cluster CA may not issue what a cluster needs: x509: too many intermediates"},
		{"below names", KindKubernetesCA, below(fenced, nil).given(t), `chain_pem: authority Cluster CA may not issue what a cluster needs`},

		{"no key in PEM form", KindEtcdCA, with(Given{KeyPair: plain.given(t).KeyPair}, func(g *Given) { g.KeyPEM = []byte("hunter2") }), "private_key_wo: authority Cluster CA: no private key in PEM form"},
		{"another key", KindEtcdCA, with(Given{KeyPair: plain.given(t).KeyPair}, func(g *Given) { g.KeyPEM = company{key: other}.keyPEM(t) }), "private_key_wo: authority Cluster CA: the private key does not belong to the certificate"},
		{"an encrypted key", KindEtcdCA, with(Given{KeyPair: plain.given(t).KeyPair}, func(g *Given) { g.KeyPEM = encode("ENCRYPTED PRIVATE KEY", []byte{1}) }), "private_key_wo: the private key is encrypted"},
		{"an encrypted key of old", KindEtcdCA, with(Given{KeyPair: plain.given(t).KeyPair}, func(g *Given) {
			g.KeyPEM = pem.EncodeToMemory(&pem.Block{Type: "RSA PRIVATE KEY", Headers: map[string]string{"Proc-Type": "4,ENCRYPTED", "DEK-Info": "AES-256-CBC,00"}, Bytes: []byte{1}})
		}), "private_key_wo: the private key is encrypted"},
	} {
		t.Run(test.name, func(t *testing.T) {
			got := said(CheckAuthority(test.kind, test.given, now))
			if test.want == "" && got != "" || !strings.Contains(got, test.want) {
				t.Errorf("got %q, wanted %q", got, test.want)
			}
			if strings.Contains(got, "hunter2") || strings.Contains(fmt.Sprintf("%v %+v %#v", test.given, test.given, Options{Authorities: Authorities{test.kind: {1: test.given}}}), "PRIVATE KEY") {
				t.Error("it shows the key")
			}
		})
	}
}

// withoutKeyID returns a certificate of an authority that has no subject key identifier.
func withoutKeyID(t *testing.T, issuer company) []byte {
	t.Helper()
	template := *issuer.cert
	template.SubjectKeyId, template.IsCA, template.BasicConstraintsValid = nil, false, false // or CreateCertificate adds one
	template.ExtraExtensions = []pkix.Extension{{Id: asn1.ObjectIdentifier{2, 5, 29, 19}, Critical: true, Value: []byte{0x30, 3, 1, 1, 0xff}}}
	template.MaxPathLen = 0
	der, err := x509.CreateCertificate(rand.Reader, &template, &template, issuer.key.Public(), issuer.key)
	if err != nil {
		t.Fatal(err)
	}
	return encode(pemCertificate, der)
}

func TestAuthoritiesApart(t *testing.T) {
	root := authority(t, "Example Root", nil, ecKey(t, elliptic.P256()), nil)
	a := authority(t, "Cluster A", &root, ecKey(t, elliptic.P256()), nil)
	b := authority(t, "Cluster B", &root, ecKey(t, elliptic.P256()), nil)
	again := authority(t, "Cluster A again", &root, a.key, nil)
	alone := func(c company) Given { return Given{KeyPair: c.given(t).KeyPair} }
	for _, test := range []struct {
		given Authorities
		want  string
	}{
		{Authorities{KindKubernetesCA: {1: a.given(t)}, KindEtcdCA: {1: alone(b)}}, ""},
		{Authorities{KindKubernetesCA: {1: a.given(t), 2: again.given(t)}}, ""},
		{Authorities{KindKubernetesCA: {1: a.given(t)}, KindFrontProxyCA: {1: alone(a)}}, `authorities.front_proxy_ca["1"].certificate_pem: this is generation 1 of kubernetes_ca as well`},
		{Authorities{KindKubernetesCA: {1: a.given(t)}, KindEtcdCA: {2: alone(again)}}, `authorities.etcd_ca["2"].certificate_pem: this is generation 1 of kubernetes_ca as well`},
		{Authorities{KindKubernetesCA: {1: a.given(t)}, KindEtcdCA: {1: alone(root)}}, `authorities.etcd_ca["1"].certificate_pem: this authority has issued generation 1 of kubernetes_ca`},
	} {
		got := said(test.given.Check(Generations{KubernetesCA: []int{1, 2}, EtcdCA: []int{1, 2}}, nil, now))
		if test.want == "" && got != "" || !strings.Contains(got, test.want) {
			t.Errorf("got %q, wanted %q", got, test.want)
		}
	}
}

// TestKeptAuthorities: what the key store has stays apart from what is given, and needs its chain as long as it is in use.
func TestKeptAuthorities(t *testing.T) {
	root := authority(t, "Example Root", nil, ecKey(t, elliptic.P256()), nil)
	a := authority(t, "Cluster A", &root, ecKey(t, elliptic.P256()), nil)
	b := authority(t, "Cluster B", &root, ecKey(t, elliptic.P256()), nil)
	short := authority(t, "Short Root", nil, ecKey(t, elliptic.P256()), func(c *x509.Certificate) { c.NotAfter = now.Add(MinCAValidity - time.Hour) })
	have := map[string]string{PublicName(KindKubernetesCA, 1): string(a.pem()), PublicName(KindFrontProxyCA, 1): string(b.pem())}
	changed := func(change func(*Given)) Authorities {
		g := a.given(t)
		change(&g)
		return Authorities{KindKubernetesCA: {1: g}}
	}
	for name, test := range map[string]struct {
		given Authorities
		at    time.Time
		want  string
	}{
		"as it was":        {given: changed(func(*Given) {}), at: now},
		"long expired":     {given: changed(func(*Given) {}), at: now.AddDate(50, 0, 0)},
		"taken out":        {given: Authorities{}, at: now, want: `authorities.kubernetes_ca["1"]: generation 1 of kubernetes_ca was given, and CN=Example Root has issued it: give it again`},
		"chain taken out":  {given: changed(func(g *Given) { g.ChainPEM = nil }), at: now, want: `authorities.kubernetes_ca["1"].chain_pem: CN=Example Root has issued authority Cluster A`},
		"another chain":    {given: changed(func(g *Given) { g.ChainPEM = short.pem() }), at: now, want: `authorities.kubernetes_ca["1"].chain_pem: Short Root has not issued Cluster A`},
		"a key in it":      {given: changed(func(g *Given) { g.ChainPEM = append(g.ChainPEM, g.KeyPEM...) }), at: now, want: "chain_pem: there is a private key"},
		"a key beside it":  {given: changed(func(g *Given) { g.CertPEM = append(g.CertPEM, g.KeyPEM...) }), at: now, want: "certificate_pem: there is a private key"},
		"a stored sibling": {given: Authorities{KindKubernetesCA: {1: a.given(t), 2: b.given(t)}}, at: now, want: `authorities.kubernetes_ca["2"].certificate_pem: this is generation 1 of front_proxy_ca as well: whoever`},
		"twice the same":   {given: Authorities{KindKubernetesCA: {1: a.given(t), 2: a.given(t)}}, at: now, want: `authorities.kubernetes_ca["2"].certificate_pem: this is generation 1 of kubernetes_ca as well: nothing would be rotated`},
	} {
		wanted := Generations{KubernetesCA: []int{1, 2}}
		got := said(append(test.given.MissingChains(wanted, have), test.given.Check(wanted, have, test.at)...))
		if test.want == "" && got != "" || !strings.Contains(got, test.want) || strings.Contains(got, "BEGIN") {
			t.Errorf("%s: got %q, wanted %q", name, got, test.want)
		}
	}
	c := authority(t, "Cluster C", &short, ecKey(t, elliptic.P256()), nil)
	if got := said(CheckAuthority(KindKubernetesCA, c.given(t), now)); !strings.Contains(got, "chain_pem: authority Short Root expires on") {
		t.Errorf("below a root that ends soon: %q", got)
	}
}

// TestBootstrapGivenAfterInterruption: the key that an interrupted apply has left must be that of the given certificate.
func TestBootstrapGivenAfterInterruption(t *testing.T) {
	root := authority(t, "Example Root", nil, ecKey(t, elliptic.P256()), nil)
	left, given := authority(t, "Left", &root, ecKey(t, elliptic.P256()), nil), authority(t, "Given", &root, ecKey(t, elliptic.P256()), nil)
	store := NewMemoryStore(map[string]string{SecretName(KindKubernetesCA, 1): string(left.keyPEM(t))})
	bootstrap := func(c company) error {
		_, err := Bootstrap(t.Context(), store, "demo", now, rand.Reader, Options{Store: StoreSSM, Authorities: Authorities{KindKubernetesCA: {1: c.given(t)}}})
		return err
	}
	if err := bootstrap(given); err == nil || !strings.Contains(err.Error(), "an interrupted apply has left a private key of generation 1") {
		t.Errorf("another authority: %v", err)
	}
	if _, err := store.Get(t.Context(), PublicName(KindKubernetesCA, 1)); !errors.Is(err, ErrNotFound) {
		t.Errorf("a certificate was written without its key: %v", err)
	}
	if err := bootstrap(left); err != nil {
		t.Error(err)
	}
}

// TestBootstrapGiven makes a cluster with a given authority, rotates to another one and away, and
// puts a lost key back.
func TestBootstrapGiven(t *testing.T) {
	root := authority(t, "Example Root", nil, rsaKey(t, 2048), nil)
	policy := authority(t, "Example Policy", &root, ecKey(t, elliptic.P256()), nil)
	first := authority(t, "Cluster CA", &policy, ecKey(t, elliptic.P256()), nil)
	second := authority(t, "Cluster CA", &root, rsaKey(t, 2048), nil)
	given := Authorities{KindKubernetesCA: {1: first.given(t)}}
	store := NewMemoryStore(nil)
	at := func(list ...int) Options {
		return Options{Store: StoreSSM, Generations: Generations{KubernetesCA: list}, Authorities: given}
	}
	ref, err := Bootstrap(t.Context(), store, "demo", now, rand.Reader, at(1))
	if err != nil {
		t.Fatal(err)
	}
	if got := Certificates(ref.KubernetesCA); !slices.Equal(got, []string{string(first.pem())}) {
		t.Errorf("the anchors are %s", got)
	}
	if ref.KubernetesCAChain != string(first.chain()) || ref.ServerBundle(KubernetesCA) != ref.KubernetesCA+ref.KubernetesCAChain {
		t.Errorf("the chain is %s", ref.KubernetesCAChain)
	}
	if got := said(given.Check(at(1).Generations, ref.Public(), now.AddDate(50, 0, 0))); got != "" {
		t.Errorf("an authority that exists is refused: %s", got)
	}
	changed := Authorities{KindKubernetesCA: {1: second.given(t)}}
	if got := said(changed.Check(at(1).Generations, ref.Public(), now)); !strings.Contains(got, `authorities.kubernetes_ca["1"].certificate_pem: generation 1 of kubernetes_ca has another certificate`) ||
		!strings.Contains(got, "generations.kubernetes_ca = [1, 2]") {
		t.Errorf("it says %q", got)
	}

	step := func(from []int, list ...int) Ref {
		t.Helper()
		ref, err := Rotate(t.Context(), store, "demo", Generations{KubernetesCA: from}, now, rand.Reader, at(list...))
		if err != nil {
			t.Fatal(err)
		}
		key, err := store.Get(t.Context(), ref.IssuingKey(KubernetesCA))
		if err != nil {
			t.Fatal(err)
		}
		issuing, err := LoadAuthority(KeyPair{CertPEM: []byte(ref.ServerBundle(KubernetesCA)), KeyPEM: key})
		if err != nil {
			t.Fatal(err)
		}
		serves(t, issuing, ref)
		return ref
	}
	given[KindKubernetesCA][2] = second.given(t)
	step([]int{1}, 1, 2)
	step([]int{1, 2}, 2, 1)
	delete(given[KindKubernetesCA], 1)
	if ref = step([]int{2, 1}, 2); ref.KubernetesCAChain != string(root.pem()) {
		t.Errorf("the chain is %s", ref.KubernetesCAChain)
	}
	// A lost key is put back from the configuration, and only from there.
	name := SecretName(KindKubernetesCA, 2)
	if err := store.Delete(t.Context(), name); err != nil {
		t.Fatal(err)
	}
	without := at(2)
	without.Authorities = Authorities{KindKubernetesCA: {2: Given{KeyPair: KeyPair{CertPEM: second.pem()}, ChainPEM: root.pem()}}}
	_, err = Bootstrap(t.Context(), store, "demo", now, rand.Reader, without)
	if field := (*invalid.Field)(nil); !errors.As(err, &field) || field.Field != `authorities.kubernetes_ca["2"].private_key_wo` {
		t.Errorf("without the key it says %v", err)
	}
	if _, err := Bootstrap(t.Context(), store, "demo", now, rand.Reader, at(2)); err != nil {
		t.Error(err)
	}
	step([]int{2}, 2, 3)
	step([]int{2, 3}, 3, 2)
	delete(given[KindKubernetesCA], 2)
	if ref = step([]int{3, 2}, 3); ref.KubernetesCAChain != "" {
		t.Errorf("the chain is %s", ref.KubernetesCAChain)
	}
}

// serves checks that a server's certificate is accepted by everybody who verifies: with the anchors
// alone, and from the root alone with what the server sends.
func serves(t *testing.T, a *Authority, ref Ref) {
	t.Helper()
	pair, err := a.Issue(Request{CommonName: "kube-apiserver", IPs: []netip.Addr{netip.MustParseAddr("10.32.0.1")}, Server: true}, now, rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	sent, err := tls.X509KeyPair(pair.CertPEM, pair.KeyPEM)
	if err != nil {
		t.Fatal(err)
	}
	leaf, err := x509.ParseCertificate(sent.Certificate[0])
	if err != nil {
		t.Fatal(err)
	}
	between := x509.NewCertPool()
	for _, der := range sent.Certificate[1:] {
		c, err := x509.ParseCertificate(der)
		if err != nil {
			t.Fatal(err)
		}
		if selfSigned(c) {
			t.Error("the root is sent")
		}
		between.AddCert(c)
	}
	roots := []string{ref.KubernetesCA}
	for _, c := range Certificates(ref.KubernetesCAChain) {
		if !selfSigned(a.cert) && selfSigned(soleCertificate([]byte(c))) {
			roots = append(roots, c)
		}
	}
	for _, r := range roots {
		pool := x509.NewCertPool()
		pool.AppendCertsFromPEM([]byte(r))
		if _, err := leaf.Verify(x509.VerifyOptions{Roots: pool, Intermediates: between, CurrentTime: now, DNSName: "10.32.0.1"}); err != nil {
			t.Errorf("not accepted: %v", err)
		}
	}
}

// TestIssueWithinConstraints checks that an address that the authority may not sign for is an error,
// and no certificate that nobody accepts.
func TestIssueWithinConstraints(t *testing.T) {
	c := authority(t, "Cluster CA", nil, ecKey(t, elliptic.P256()), func(c *x509.Certificate) {
		c.ExcludedIPRanges = []*net.IPNet{{IP: net.IP{10, 0, 0, 0}, Mask: net.CIDRMask(8, 32)}}
	})
	a, err := LoadAuthority(c.given(t).KeyPair)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := a.Issue(kubeletRequest(), now, rand.Reader); err == nil || !strings.Contains(err.Error(), "10.240.0.20") {
		t.Errorf("got %v", err)
	}
}
