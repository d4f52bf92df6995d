package pki

import (
	"crypto/x509"
	"slices"
	"strings"
	"time"

	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/finding"
)

// Check returns why a certificate must be reissued; nothing if it is good. The findings are of kind
// [finding.Certificate], without subject and target. The first certificate of the bundle is the
// authority that must have issued it. A certificate is due earlyRenewal before it expires, or after
// two thirds of its validity if that is less than three times earlyRenewal.
func Check(certPEM, caBundlePEM []byte, r Request, now time.Time, earlyRenewal time.Duration) []finding.Finding {
	certs, err := parseCertificates(certPEM)
	if err != nil {
		return []finding.Finding{{Kind: finding.Certificate, Problem: finding.Unreadable, Cause: err.Error()}}
	}
	cert := certs[0]
	var out []finding.Finding
	add := func(problem finding.Problem, found, wanted string) {
		out = append(out, finding.Finding{Kind: finding.Certificate, Problem: problem, Found: found, Wanted: wanted})
	}
	lists := func(problem finding.Problem, found, wanted []string) {
		if !sameSet(found, wanted) {
			add(problem, strings.Join(found, "\n"), strings.Join(wanted, "\n"))
		}
	}
	if cert.Subject.CommonName != r.CommonName {
		add(finding.CommonName, cert.Subject.CommonName, r.CommonName)
	}
	lists(finding.Organizations, cert.Subject.Organization, r.Organizations)
	lists(finding.DNSNames, cert.DNSNames, r.DNSNames)
	lists(finding.Addresses, ipStrings(cert.IPAddresses), ipStrings(netIPs(r.IPs)))
	for _, u := range r.usages() {
		if !slices.Contains(cert.ExtKeyUsage, u) {
			add(finding.Usage, "", map[x509.ExtKeyUsage]string{x509.ExtKeyUsageServerAuth: "server", x509.ExtKeyUsageClientAuth: "client"}[u])
		}
	}
	out = append(out, checkIssuer(cert, caBundlePEM)...)
	switch due := renewAt(cert, earlyRenewal); {
	case now.After(cert.NotAfter):
		add(finding.Expired, day(cert.NotAfter), "")
	case now.Before(cert.NotBefore):
		add(finding.NotYetValid, day(cert.NotBefore), "")
	case !now.Before(due):
		out = append(out, finding.Finding{Kind: finding.Certificate, Problem: finding.Due, Found: day(cert.NotAfter), Since: day(due)})
	}
	return out
}

// CommonName returns the common name of the first certificate in certPEM, its whole name if it has none.
func CommonName(certPEM []byte) (string, error) {
	certs, err := parseCertificates(certPEM)
	if err != nil {
		return "", err
	}
	return nameOf(certs[0]), nil
}

// Expiry returns when the first certificate in certPEM expires.
func Expiry(certPEM []byte) (time.Time, error) {
	certs, err := parseCertificates(certPEM)
	if err != nil {
		return time.Time{}, err
	}
	return certs[0].NotAfter, nil
}

// RotationDue returns when the issuing authority, the first of the bundle, is due for rotation, and
// when it expires. It is due when a new leaf certificate would outlive it, or after two thirds of
// its validity if that is short.
func RotationDue(bundlePEM []byte) (due, end time.Time, err error) {
	certs, err := parseCertificates(bundlePEM)
	if err != nil {
		return time.Time{}, time.Time{}, err
	}
	return renewAt(certs[0], DefaultValidity), certs[0].NotAfter, nil
}

// IssuedBy reports whether a certificate is from the authority that issues now: the first of the
// bundle.
func IssuedBy(certPEM, caBundlePEM []byte) bool {
	certs, err := parseCertificates(certPEM)
	return err == nil && len(checkIssuer(certs[0], caBundlePEM)) == 0
}

func checkIssuer(cert *x509.Certificate, caBundlePEM []byte) []finding.Finding {
	cas, err := parseCertificates(caBundlePEM)
	if err != nil {
		return []finding.Finding{{Kind: finding.Certificate, Problem: finding.NoAuthority, Cause: err.Error()}}
	}
	wanted := nameOf(cas[0])
	issuedBy := func(found string) []finding.Finding {
		return []finding.Finding{{Kind: finding.Certificate, Problem: finding.Issuer, Found: found, Wanted: wanted}}
	}
	for i, ca := range cas {
		switch {
		case cert.CheckSignatureFrom(ca) != nil:
		case i == 0:
			return nil
		default:
			return issuedBy(nameOf(ca))
		}
	}
	if issuer := cert.Issuer.CommonName; issuer != wanted {
		return issuedBy(issuer)
	}
	return []finding.Finding{{Kind: finding.Certificate, Problem: finding.Signature, Wanted: wanted}}
}

func renewAt(cert *x509.Certificate, early time.Duration) time.Time {
	life := cert.NotAfter.Sub(cert.NotBefore)
	return cert.NotAfter.Add(-min(early, life/3))
}
