package pki

import (
	"crypto/x509"
	"fmt"
	"slices"
	"time"
)

// Check returns, in words, why a certificate must be reissued; empty when it is good.
// The first certificate of the bundle is the authority that must have issued it.
// A certificate is due earlyRenewal before it ends, or after two thirds of
// its life when it was issued for less than three times that long.
func Check(certPEM, caBundlePEM []byte, r Request, now time.Time, earlyRenewal time.Duration) []string {
	certs, err := parseCertificates(certPEM)
	if err != nil {
		return []string{err.Error()}
	}
	cert := certs[0]
	var reasons []string
	say := func(format string, args ...any) { reasons = append(reasons, fmt.Sprintf(format, args...)) }

	if cert.Subject.CommonName != r.CommonName {
		say("common name is %q, wanted %q", cert.Subject.CommonName, r.CommonName)
	}
	if !sameSet(cert.Subject.Organization, r.Organizations) {
		say("organizations are %q, wanted %q", cert.Subject.Organization, r.Organizations)
	}
	if !sameSet(cert.DNSNames, r.DNSNames) {
		say("DNS names are %q, wanted %q", cert.DNSNames, r.DNSNames)
	}
	if got, want := ipStrings(cert.IPAddresses), ipStrings(netIPs(r.IPs)); !sameSet(got, want) {
		say("addresses are %q, wanted %q", got, want)
	}
	for _, u := range r.usages() {
		if !slices.Contains(cert.ExtKeyUsage, u) {
			say("not usable as a %s certificate", map[x509.ExtKeyUsage]string{
				x509.ExtKeyUsageServerAuth: "server", x509.ExtKeyUsageClientAuth: "client"}[u])
		}
	}
	if reason := checkIssuer(cert, caBundlePEM); reason != "" {
		say("%s", reason)
	}
	switch due := renewAt(cert, earlyRenewal); {
	case now.After(cert.NotAfter):
		say("expired on %s", day(cert.NotAfter))
	case now.Before(cert.NotBefore):
		say("not valid before %s", day(cert.NotBefore))
	case !now.Before(due):
		say("expires on %s and is due for renewal since %s", day(cert.NotAfter), day(due))
	}
	return reasons
}

// CommonName returns the common name of the first certificate in certPEM.
func CommonName(certPEM []byte) (string, error) {
	certs, err := parseCertificates(certPEM)
	if err != nil {
		return "", err
	}
	return certs[0].Subject.CommonName, nil
}

// Expiry returns when the first certificate in certPEM ends.
func Expiry(certPEM []byte) (time.Time, error) {
	certs, err := parseCertificates(certPEM)
	if err != nil {
		return time.Time{}, err
	}
	return certs[0].NotAfter, nil
}

// RotationDue returns when the authority that issues, the first of the bundle,
// is due for rotation, and when it ends. It is due when a leaf certificate
// would outlive it, or after two thirds of a life that is shorter than that.
func RotationDue(bundlePEM []byte) (due, end time.Time, err error) {
	certs, err := parseCertificates(bundlePEM)
	if err != nil {
		return time.Time{}, time.Time{}, err
	}
	return renewAt(certs[0], DefaultValidity), certs[0].NotAfter, nil
}

// CheckIssuer returns, in words, why a certificate is not one that the
// authority issues now: the first of the bundle. Empty when it is.
func CheckIssuer(certPEM, caBundlePEM []byte) string {
	certs, err := parseCertificates(certPEM)
	if err != nil {
		return err.Error()
	}
	return checkIssuer(certs[0], caBundlePEM)
}

func checkIssuer(cert *x509.Certificate, caBundlePEM []byte) string {
	cas, err := parseCertificates(caBundlePEM)
	if err != nil {
		return "authority: " + err.Error()
	}
	wanted := cas[0].Subject.CommonName
	for i, ca := range cas {
		switch {
		case cert.CheckSignatureFrom(ca) != nil:
		case i == 0:
			return ""
		default:
			return fmt.Sprintf("issued by %s, wanted %s", ca.Subject.CommonName, wanted)
		}
	}
	if issuer := cert.Issuer.CommonName; issuer != wanted {
		return fmt.Sprintf("issued by %s, wanted %s", issuer, wanted)
	}
	return "not issued by " + wanted
}

func renewAt(cert *x509.Certificate, early time.Duration) time.Time {
	life := cert.NotAfter.Sub(cert.NotBefore)
	return cert.NotAfter.Add(-min(early, life/3))
}
