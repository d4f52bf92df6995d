// Package company is for tests: authorities as a company has them, a root and what it has issued.
package company

import (
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/rsa"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"math/big"
	"net"
	"testing"
	"time"
)

// Authority is an authority, with what has issued it.
type Authority struct {
	cert  *x509.Certificate
	key   crypto.Signer
	above *Authority // nil for a root
}

// Root makes a root with an RSA key.
func Root(t *testing.T, name string) *Authority {
	t.Helper()
	key, err := rsa.GenerateKey(rand.Reader, 2048)
	if err != nil {
		t.Fatal(err)
	}
	return sign(t, name, nil, key)
}

// Issue makes an authority below a with an ECDSA key.
func (a *Authority) Issue(t *testing.T, name string) *Authority {
	t.Helper()
	return sign(t, name, a, newKey(t))
}

// IssueRSA is Issue with an RSA key.
func (a *Authority) IssueRSA(t *testing.T, name string) *Authority {
	t.Helper()
	key, err := rsa.GenerateKey(rand.Reader, 3072)
	if err != nil {
		t.Fatal(err)
	}
	return sign(t, name, a, key)
}

func newKey(t *testing.T) *ecdsa.PrivateKey {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	return key
}

func sign(t *testing.T, name string, above *Authority, key crypto.Signer) *Authority {
	t.Helper()
	template := &x509.Certificate{
		Subject: pkix.Name{CommonName: name, Organization: []string{"Example"}}, NotAfter: time.Now().AddDate(5, 0, 0),
		KeyUsage: x509.KeyUsageCertSign | x509.KeyUsageCRLSign, BasicConstraintsValid: true, IsCA: true,
	}
	return &Authority{cert: create(t, template, above, key.Public(), key), key: key, above: above}
}

func create(t *testing.T, template *x509.Certificate, by *Authority, public crypto.PublicKey, own crypto.Signer) *x509.Certificate {
	t.Helper()
	template.SerialNumber, template.NotBefore = big.NewInt(time.Now().UnixNano()), time.Now().Add(-time.Hour)
	parent, signer := template, own
	if by != nil {
		parent, signer = by.cert, by.key
	}
	der, err := x509.CreateCertificate(rand.Reader, template, parent, public, signer)
	if err != nil {
		t.Fatal(err)
	}
	cert, err := x509.ParseCertificate(der)
	if err != nil {
		t.Fatal(err)
	}
	return cert
}

// Client makes the certificate and the key of a client, which sends its issuer as well.
func (a *Authority) Client(t *testing.T, user, group string) (certPEM, keyPEM string) {
	t.Helper()
	certPEM, keyPEM = a.leaf(t, &x509.Certificate{Subject: pkix.Name{CommonName: user, Organization: []string{group}},
		NotAfter: time.Now().Add(time.Hour), ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth}})
	return certPEM + a.Certificate(), keyPEM
}

// Server makes the certificate and the key of a server at an address.
func (a *Authority) Server(t *testing.T, address net.IP) (certPEM, keyPEM string) {
	t.Helper()
	return a.leaf(t, &x509.Certificate{Subject: pkix.Name{CommonName: address.String()}, IPAddresses: []net.IP{address},
		NotAfter: time.Now().AddDate(1, 0, 0), ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth}})
}

func (a *Authority) leaf(t *testing.T, template *x509.Certificate) (certPEM, keyPEM string) {
	t.Helper()
	key := newKey(t)
	template.KeyUsage = x509.KeyUsageDigitalSignature
	return encode("CERTIFICATE", create(t, template, a, key.Public(), nil).Raw), private(t, key)
}

// Certificate is the authority's certificate, in PEM.
func (a *Authority) Certificate() string { return encode("CERTIFICATE", a.cert.Raw) }

// Chain has the certificates above the authority up to the root, in PEM.
func (a *Authority) Chain() string {
	if a.above == nil {
		return ""
	}
	return a.above.Certificate() + a.above.Chain()
}

// Key is the authority's key, in PEM.
func (a *Authority) Key(t *testing.T) string {
	t.Helper()
	return private(t, a.key)
}

func private(t *testing.T, key crypto.Signer) string {
	t.Helper()
	der, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		t.Fatal(err)
	}
	return encode("PRIVATE KEY", der)
}

func encode(kind string, der []byte) string {
	return string(pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der}))
}

// Name is the common name.
func (a *Authority) Name() string { return a.cert.Subject.CommonName }
