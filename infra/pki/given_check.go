package pki

import (
	"crypto"
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/elliptic"
	"crypto/rsa"
	"crypto/x509"
	"crypto/x509/pkix"
	"errors"
	"fmt"
	"math/big"
	"net/netip"
	"slices"
	"strings"
	"time"

	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/invalid"
)

const (
	minRSABits = 2048
	// maxRSABits and maxEntry: a standard parameter of SSM, which is an entry of the key store, has
	// 4 KiB (https://docs.aws.amazon.com/general/latest/gr/ssm.html).
	maxRSABits = 4096
	maxEntry   = 4096
)

// CheckAuthority returns why a given authority cannot be one of a cluster. The fields of the errors
// are "certificate_pem", "chain_pem" and "private_key_wo". A key that is empty is not checked.
//
// It must be able to issue what the cluster needs for at least MinCAValidity, and every program of
// the cluster must be able to verify with it.
func CheckAuthority(k Kind, g Given, now time.Time) invalid.Fields {
	var errs invalid.Fields
	cert, err := checkCertificate(g.CertPEM, now)
	if err == nil {
		err = probe(k, cert, nil)
	}
	errs.Add(fieldCertificate, "Unusable authority", err)
	if err != nil {
		return errs
	}
	if len(g.KeyPEM) > 0 {
		errs.Add(fieldKey, "Unusable private key", checkKey(g.KeyPair))
	}
	return append(errs, checkAbove(k, cert, g, now)...)
}

// checkAbove returns what is wrong with the chain of an authority. At the zero time the chain's own time does not count, so that an
// authority that is in use can be rotated.
func checkAbove(k Kind, cert *x509.Certificate, g Given, now time.Time) invalid.Fields {
	var errs invalid.Fields
	switch root := selfSigned(cert); {
	case k != KindKubernetesCA:
		if len(g.ChainPEM) > 0 {
			errs.Say(fieldChain, "Chain without use", "only the chain of the Kubernetes CA is used: every program that verifies with %s accepts the authority itself as an anchor", k)
		}
	case root && len(g.ChainPEM) > 0:
		errs.Say(fieldChain, "Chain without use", "authority %s is a root, there is nothing above it", nameOf(cert))
	case !root && len(g.ChainPEM) == 0:
		errs.Miss(fieldChain, "Missing chain", "%s has issued authority %s: give the certificates above the authority, up to the root. HAProxy and many programs in pods accept a "+
			"server's certificate only up to a root", cert.Issuer, nameOf(cert))
	case !root:
		errs.Add(fieldChain, "Unusable chain", checkChain(cert, g.ChainPEM, now))
	}
	return errs
}

// checkCertificate returns the only certificate of a text, or why it is none of an authority.
func checkCertificate(b []byte, now time.Time) (*x509.Certificate, error) {
	certs, err := onlyCertificates(b)
	switch {
	case err != nil:
		return nil, err
	case len(certs) > 1:
		return nil, fmt.Errorf("there are %d certificates: give only that of the authority, and those above it in chain_pem", len(certs))
	}
	cert := certs[0]
	fail := func(format string, args ...any) (*x509.Certificate, error) {
		return nil, fmt.Errorf("authority %s: "+format, append([]any{nameOf(cert)}, args...)...)
	}
	if err := checkSigner(cert, now); err != nil {
		return nil, err
	}
	if err := checkStrength(cert.PublicKey); err != nil {
		return fail("%w", err)
	}
	switch {
	case len(cert.SubjectKeyId) == 0:
		return fail("it has no subject key identifier, by which programs tell generations of the same name apart")
	case cert.NotAfter.Before(now.Add(MinCAValidity)):
		return fail("it expires on %s. Certificates cannot outlive it, so at least %s must be left", day(cert.NotAfter), hours(MinCAValidity))
	case len(encode(pemCertificate, cert.Raw)) > maxEntry:
		return fail("in PEM form it has more than %d bytes, which a parameter of the key store holds", maxEntry)
	}
	return cert, nil
}

// onlyCertificates parses a text that must have nothing but certificates.
func onlyCertificates(b []byte) ([]*x509.Certificate, error) {
	for _, block := range pemBlocks(b) {
		switch {
		case strings.HasSuffix(block.Type, pemPrivateKey):
			return nil, errors.New("there is a private key beside the certificate, and this argument is in the state: take it out. Keys are given in private_key_wo")
		case block.Type != pemCertificate:
			return nil, errors.New("there is something else than certificates")
		}
	}
	return parseCertificates(b)
}

// checkSigner returns why a certificate is not one of an authority that programs accept now.
func checkSigner(cert *x509.Certificate, now time.Time) error {
	fail := func(format string, args ...any) error {
		return fmt.Errorf("authority %s: "+format, append([]any{nameOf(cert)}, args...)...)
	}
	weak := []x509.SignatureAlgorithm{x509.MD2WithRSA, x509.MD5WithRSA, x509.SHA1WithRSA, x509.DSAWithSHA1, x509.ECDSAWithSHA1}
	switch {
	case !cert.BasicConstraintsValid || !cert.IsCA:
		return fail("the certificate is not one of a certificate authority (basic constraints)")
	case cert.KeyUsage&x509.KeyUsageCertSign == 0:
		return fail("its key usage does not allow it to sign certificates")
	case len(cert.UnhandledCriticalExtensions) > 0:
		return fail("it has a critical extension that the programs of a cluster do not know: %s", cert.UnhandledCriticalExtensions[0])
	case slices.Contains(weak, cert.SignatureAlgorithm) && !selfSigned(cert):
		return fail("it is signed with %s, which programs refuse", cert.SignatureAlgorithm)
	case now.IsZero():
	case now.Before(cert.NotBefore):
		return fail("it is valid only from %s on", day(cert.NotBefore))
	case now.After(cert.NotAfter):
		return fail("it expired on %s", day(cert.NotAfter))
	}
	return nil
}

// checkStrength returns why the programs of a cluster cannot use a key. The controller manager reads
// RSA and ECDSA (k8s.io/client-go/util/keyutil).
func checkStrength(key crypto.PublicKey) error {
	switch key := key.(type) {
	case *rsa.PublicKey:
		if bits := key.N.BitLen(); bits < minRSABits || bits > maxRSABits {
			return fmt.Errorf("its RSA key has %d bits: at least %d, and at most %d", bits, minRSABits, maxRSABits)
		}
		return nil
	case *ecdsa.PublicKey:
		if slices.Contains([]elliptic.Curve{elliptic.P256(), elliptic.P384(), elliptic.P521()}, key.Curve) {
			return nil
		}
		return errors.New("its key is on another curve than P-256, P-384 and P-521")
	}
	return errors.New("its key is neither RSA nor ECDSA, and the controller manager signs with no other")
}

// checkKey returns why a key cannot be that of a certificate. The error has nothing of the key.
func checkKey(kp KeyPair) error {
	for _, block := range pemBlocks(kp.KeyPEM) {
		if block.Type == "ENCRYPTED PRIVATE KEY" || block.Headers["DEK-Info"] != "" {
			return errors.New("the private key is encrypted, and there is nobody to type its passphrase: decrypt it, for example with openssl pkey")
		}
	}
	_, err := LoadAuthority(kp)
	return err
}

// checkChain returns why a chain does not lead from an authority to a root, the next one first.
func checkChain(cert *x509.Certificate, chainPEM []byte, now time.Time) error {
	chain, err := onlyCertificates(chainPEM)
	if err != nil {
		return err
	}
	below := cert
	for _, c := range chain {
		if err := below.CheckSignatureFrom(c); err != nil {
			return fmt.Errorf("%s has not issued %s: give every certificate above the authority once, in order, the root last", nameOf(c), nameOf(below))
		}
		if err := checkSigner(c, now); err != nil {
			return err
		}
		if !now.IsZero() && c.NotAfter.Before(now.Add(MinCAValidity)) {
			return fmt.Errorf("authority %s expires on %s, and what is below it with it: at least %s must be left", nameOf(c), day(c.NotAfter), hours(MinCAValidity))
		}
		below = c
	}
	if !selfSigned(below) {
		return fmt.Errorf("it ends with %s, which %s has issued: the last certificate must be a root", nameOf(below), below.Issuer)
	}
	return probe(KindKubernetesCA, cert, chain)
}

// sample returns a certificate that every cluster needs of a kind of authority. Names and addresses
// of machines are not known here: [Authority.Issue] checks them.
func sample(k Kind) Request {
	local := []netip.Addr{netip.AddrFrom4([4]byte{127, 0, 0, 1})}
	switch k {
	case KindKubernetesCA:
		return Request{DNSNames: []string{"kubernetes", "kubernetes.default.svc", "localhost"}, IPs: local, Server: true, Client: true}
	case KindEtcdCA:
		return Request{DNSNames: []string{"localhost"}, IPs: local, Server: true, Client: true}
	}
	return Request{Client: true}
}

// probe returns why an authority may not issue what a cluster needs of it: by its extended key
// usage, its name constraints or its path length, or those above it. It issues the sample with
// copies of the certificates that have a key of its own, so it needs no private key. With a chain
// it verifies as those do who accept a server's certificate only up to a root.
func probe(k Kind, cert *x509.Certificate, chain []*x509.Certificate) error {
	key := ed25519.NewKeyFromSeed(make([]byte, ed25519.SeedSize)) // it proves nothing
	at := time.Unix(0, 0)
	path := append([]*x509.Certificate{cert}, chain...)
	var parent *x509.Certificate
	sign := func(template *x509.Certificate) (*x509.Certificate, error) {
		issuer := parent
		if issuer == nil {
			issuer = template
		}
		template.SerialNumber, template.NotBefore, template.NotAfter = big.NewInt(1), at, at.Add(time.Hour)
		der, err := x509.CreateCertificate(nil, template, issuer, key.Public(), key)
		if err != nil {
			return nil, err
		}
		return x509.ParseCertificate(der)
	}
	roots, between := x509.NewCertPool(), x509.NewCertPool()
	for i, c := range slices.Backward(path) {
		t := &x509.Certificate{
			RawSubject: c.RawSubject, SubjectKeyId: []byte{byte(i)}, KeyUsage: c.KeyUsage, ExtKeyUsage: c.ExtKeyUsage, UnknownExtKeyUsage: c.UnknownExtKeyUsage,
			BasicConstraintsValid: true, IsCA: true, MaxPathLen: c.MaxPathLen, MaxPathLenZero: c.MaxPathLenZero,
			PermittedDNSDomainsCritical: c.PermittedDNSDomainsCritical, PermittedDNSDomains: c.PermittedDNSDomains, ExcludedDNSDomains: c.ExcludedDNSDomains,
			PermittedIPRanges: c.PermittedIPRanges, ExcludedIPRanges: c.ExcludedIPRanges,
		}
		var err error
		pool := roots
		if parent != nil {
			pool = between
		}
		if parent, err = sign(t); err != nil {
			return fmt.Errorf("authority %s: %w", nameOf(c), err)
		}
		pool.AddCert(parent)
	}
	want := sample(k)
	want.Client = want.Client && len(chain) == 0
	leaf, err := sign(&x509.Certificate{Subject: pkix.Name{CommonName: "sample"}, ExtKeyUsage: want.usages(), KeyUsage: x509.KeyUsageDigitalSignature,
		DNSNames: want.DNSNames, IPAddresses: netIPs(want.IPs)})
	if err != nil {
		return fmt.Errorf("authority %s: %w", nameOf(cert), err)
	}
	return mayIssue(cert, leaf, want, x509.VerifyOptions{Roots: roots, Intermediates: between, CurrentTime: at})
}

// mayIssue returns why a certificate of an authority is not accepted for every use of the request.
func mayIssue(authority, leaf *x509.Certificate, r Request, o x509.VerifyOptions) error {
	for _, u := range r.usages() {
		o.KeyUsages = []x509.ExtKeyUsage{u}
		_, err := leaf.Verify(o)
		var refused x509.CertificateInvalidError
		switch {
		case err == nil:
		case errors.As(err, &refused) && refused.Reason == x509.IncompatibleUsage:
			return fmt.Errorf("authority %s: an extended key usage of it, or above it, does not allow certificates of %s", nameOf(authority),
				map[x509.ExtKeyUsage]string{x509.ExtKeyUsageServerAuth: "servers", x509.ExtKeyUsageClientAuth: "clients"}[u])
		default:
			return fmt.Errorf("authority %s may not issue what a cluster needs: %w", nameOf(authority), err)
		}
	}
	return nil
}

// nameOf returns the common name of a certificate, or its whole name if it has none.
func nameOf(c *x509.Certificate) string {
	if c.Subject.CommonName != "" {
		return c.Subject.CommonName
	}
	return c.Subject.String()
}
