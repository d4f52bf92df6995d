package pki

import (
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/base64"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math/big"
	"net"
	"net/netip"
	"slices"
	"strings"
	"time"
)

const (
	pemCertificate = "CERTIFICATE"
	pemPrivateKey  = "PRIVATE KEY" // PKCS #8
	pemPublicKey   = "PUBLIC KEY"  // PKIX

	encryptionKeyBytes = 32
)

// Authority is a certificate authority that can issue certificates. Printing it shows no key.
type Authority struct {
	cert  *x509.Certificate
	above []byte // the certificates that a server sends after its own, in PEM
	key   crypto.Signer
}

// NewAuthority makes a self-signed authority with an ECDSA P-256 key, in PEM. Zero validity means
// DefaultCAValidity.
func NewAuthority(commonName string, validity time.Duration, now time.Time, rand io.Reader) (KeyPair, error) {
	key, keyPEM, err := newKey(rand)
	if err != nil {
		return KeyPair{}, fmt.Errorf("key of authority %s: %w", commonName, err)
	}
	certPEM, err := selfSign(commonName, key, validity, now, rand)
	if err != nil {
		return KeyPair{}, err
	}
	return KeyPair{CertPEM: certPEM, KeyPEM: keyPEM}, nil
}

// LoadAuthority parses an authority. The first certificate in CertPEM is the one that issues: it
// must be a certificate authority, and the key must be its own. Those of its issuers may follow.
func LoadAuthority(kp KeyPair) (*Authority, error) {
	certs, err := parseCertificates(kp.CertPEM)
	if err != nil {
		return nil, fmt.Errorf("authority: %w", err)
	}
	cert := certs[0]
	name := nameOf(cert)
	if !cert.IsCA {
		return nil, fmt.Errorf("authority %s: the certificate is not one of a certificate authority", name)
	}
	key, err := parseKey(kp.KeyPEM)
	if err != nil {
		return nil, fmt.Errorf("authority %s: %w", name, err)
	}
	if !samePublicKey(cert.PublicKey, key.Public()) {
		return nil, fmt.Errorf("authority %s: the private key does not belong to the certificate", name)
	}
	return &Authority{cert: cert, above: issuers(certs), key: key}, nil
}

// String returns the authority's name.
func (a *Authority) String() string {
	return fmt.Sprintf("Authority{%s, key: %s}", nameOf(a.cert), redacted)
}

// GoString is String, for %#v.
func (a *Authority) GoString() string { return "pki." + a.String() }

// LogValue is String, for log/slog.
func (a *Authority) LogValue() slog.Value { return slog.StringValue(a.String()) }

// Issue makes an ECDSA P-256 key and a certificate for it, in PEM, valid from Backdate before now
// and never longer than the authority. That of a server is followed by those of its issuers, but
// for the root. It is an error if the authority's constraints forbid a name or an address.
func (a *Authority) Issue(r Request, now time.Time, rand io.Reader) (KeyPair, error) {
	fail := func(err error) (KeyPair, error) {
		return KeyPair{}, fmt.Errorf("certificate %s: %w", r.CommonName, err)
	}
	usages := r.usages()
	switch {
	case r.CommonName == "":
		return fail(errors.New("no common name"))
	case len(usages) == 0:
		return fail(errors.New("neither for servers nor for clients"))
	case now.After(a.cert.NotAfter):
		return fail(fmt.Errorf("authority %s expired on %s", nameOf(a.cert), day(a.cert.NotAfter)))
	}
	key, keyPEM, err := newKey(rand)
	if err != nil {
		return fail(err)
	}
	serial, err := newSerial(rand)
	if err != nil {
		return fail(err)
	}
	notAfter := now.Add(orDefault(r.Validity, DefaultValidity))
	if notAfter.After(a.cert.NotAfter) {
		notAfter = a.cert.NotAfter
	}
	template := &x509.Certificate{
		SerialNumber:          serial,
		Subject:               pkix.Name{CommonName: r.CommonName, Organization: r.Organizations},
		NotBefore:             now.Add(-Backdate),
		NotAfter:              notAfter,
		KeyUsage:              x509.KeyUsageDigitalSignature,
		ExtKeyUsage:           usages,
		BasicConstraintsValid: true,
		DNSNames:              r.DNSNames,
		IPAddresses:           netIPs(r.IPs),
	}
	der, err := x509.CreateCertificate(rand, template, a.cert, key.Public(), a.key)
	if err != nil {
		return fail(err)
	}
	out := KeyPair{CertPEM: encode(pemCertificate, der), KeyPEM: keyPEM}
	if r.Server {
		out.CertPEM = append(out.CertPEM, a.above...)
	}
	leaf, err := x509.ParseCertificate(der)
	if err == nil {
		roots := x509.NewCertPool()
		roots.AddCert(a.cert)
		err = mayIssue(a.cert, leaf, r, x509.VerifyOptions{Roots: roots, CurrentTime: leaf.NotAfter})
	}
	if err != nil {
		return fail(err)
	}
	return out, nil
}

// NewEncryptionKey makes a 32-byte key for encryption at rest, in base64 as EncryptionConfiguration
// requires.
func NewEncryptionKey(rand io.Reader) ([]byte, error) {
	var raw [encryptionKeyBytes]byte
	if _, err := io.ReadFull(rand, raw[:]); err != nil {
		return nil, fmt.Errorf("encryption key: %w", err)
	}
	return []byte(base64.StdEncoding.EncodeToString(raw[:])), nil
}

func (r Request) usages() []x509.ExtKeyUsage {
	var out []x509.ExtKeyUsage
	if r.Server {
		out = append(out, x509.ExtKeyUsageServerAuth)
	}
	if r.Client {
		out = append(out, x509.ExtKeyUsageClientAuth)
	}
	return out
}

func selfSign(commonName string, key crypto.Signer, validity time.Duration, now time.Time, rand io.Reader) ([]byte, error) {
	serial, err := newSerial(rand)
	if err != nil {
		return nil, fmt.Errorf("authority %s: %w", commonName, err)
	}
	template := &x509.Certificate{
		SerialNumber:          serial,
		Subject:               pkix.Name{CommonName: commonName},
		NotBefore:             now.Add(-Backdate),
		NotAfter:              now.Add(orDefault(validity, DefaultCAValidity)),
		KeyUsage:              x509.KeyUsageDigitalSignature | x509.KeyUsageCertSign | x509.KeyUsageCRLSign,
		BasicConstraintsValid: true,
		IsCA:                  true,
		MaxPathLenZero:        true, // it issues only leaf certificates
	}
	der, err := x509.CreateCertificate(rand, template, template, key.Public(), key)
	if err != nil {
		return nil, fmt.Errorf("authority %s: %w", commonName, err)
	}
	return encode(pemCertificate, der), nil
}

func newKey(rand io.Reader) (crypto.Signer, []byte, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand)
	if err != nil {
		return nil, nil, err
	}
	der, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		return nil, nil, err
	}
	return key, encode(pemPrivateKey, der), nil
}

// newSerial returns 127 random bits: positive, and within the 20 bytes of RFC 5280.
func newSerial(rand io.Reader) (*big.Int, error) {
	var b [16]byte
	if _, err := io.ReadFull(rand, b[:]); err != nil {
		return nil, fmt.Errorf("serial number: %w", err)
	}
	b[0] &= 0x7f
	return new(big.Int).SetBytes(b[:]), nil
}

func publicKeyPEM(key crypto.Signer) ([]byte, error) {
	der, err := x509.MarshalPKIXPublicKey(key.Public())
	if err != nil {
		return nil, fmt.Errorf("public key: %w", err)
	}
	return encode(pemPublicKey, der), nil
}

func parseCertificates(b []byte) ([]*x509.Certificate, error) {
	var out []*x509.Certificate
	for _, block := range pemBlocks(b) {
		if block.Type != pemCertificate {
			continue
		}
		cert, err := x509.ParseCertificate(block.Bytes)
		if err != nil {
			return nil, fmt.Errorf("unreadable certificate: %w", err)
		}
		out = append(out, cert)
	}
	if len(out) == 0 {
		return nil, errors.New("no certificate in PEM form")
	}
	return out, nil
}

// parseKey never puts any part of its input into an error.
func parseKey(b []byte) (crypto.Signer, error) {
	var block pem.Block
	for _, found := range slices.Backward(pemBlocks(b)) {
		if found.Type != "EC PARAMETERS" { // of the curve, which the key names as well
			block = *found
		}
	}
	var key any
	var err error
	switch block.Type {
	case pemPrivateKey:
		key, err = x509.ParsePKCS8PrivateKey(block.Bytes)
	case "EC PRIVATE KEY":
		key, err = x509.ParseECPrivateKey(block.Bytes)
	case "RSA PRIVATE KEY":
		key, err = x509.ParsePKCS1PrivateKey(block.Bytes)
	default:
		return nil, errors.New("no private key in PEM form")
	}
	if err != nil {
		return nil, errors.New("unreadable private key")
	}
	signer, ok := key.(crypto.Signer)
	if !ok {
		return nil, errors.New("the private key cannot sign")
	}
	return signer, nil
}

func samePublicKey(a, b crypto.PublicKey) bool {
	x, ok := a.(interface{ Equal(crypto.PublicKey) bool })
	return ok && x.Equal(b)
}

func encode(kind string, der []byte) []byte {
	return pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der})
}

func netIPs(addrs []netip.Addr) []net.IP {
	var out []net.IP
	for _, a := range addrs {
		out = append(out, a.Unmap().AsSlice())
	}
	return out
}

func ipStrings(ips []net.IP) []string {
	out := []string{}
	for _, ip := range ips {
		out = append(out, ip.String())
	}
	return out
}

func sameSet(a, b []string) bool {
	norm := func(s []string) string {
		s = slices.Clone(s)
		slices.Sort(s)
		return strings.Join(slices.Compact(s), "\x00")
	}
	return norm(a) == norm(b)
}

func orDefault(d, otherwise time.Duration) time.Duration {
	if d == 0 {
		return otherwise
	}
	return d
}

func day(t time.Time) string { return t.UTC().Format(time.RFC3339) }
