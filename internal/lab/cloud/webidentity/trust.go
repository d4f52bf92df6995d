package webidentity

import (
	"cmp"
	"crypto/sha1" //nolint:gosec // what IAM's thumbprints are
	"crypto/tls"
	"crypto/x509"
	"encoding/hex"
	"errors"
	"strings"
)

// trusting returns how the server of an issuer at a host is verified: by the authorities of this computer, or else by the thumbprint of a
// certificate that it shows.
// https://docs.aws.amazon.com/IAM/latest/UserGuide/id_roles_providers_create_oidc_verify-thumbprint.html
func trusting(host string, thumbprints []string) *tls.Config {
	return &tls.Config{
		MinVersion:         tls.VersionTLS12,
		InsecureSkipVerify: true, //nolint:gosec // VerifyConnection verifies
		VerifyConnection:   func(c tls.ConnectionState) error { return verify(c, host, thumbprints) },
	}
}

func verify(c tls.ConnectionState, host string, thumbprints []string) error {
	if len(c.PeerCertificates) == 0 {
		return errors.New("the issuer shows no certificate")
	}
	// Go's client names no server if the host is an address.
	options := x509.VerifyOptions{DNSName: cmp.Or(c.ServerName, host), Intermediates: x509.NewCertPool()}
	for _, cert := range c.PeerCertificates[1:] {
		options.Intermediates.AddCert(cert)
	}
	leaf := c.PeerCertificates[0]
	_, err := leaf.Verify(options)
	for _, cert := range c.PeerCertificates {
		if err == nil {
			return nil
		}
		sum := sha1.Sum(cert.Raw) //nolint:gosec // see above
		for _, t := range thumbprints {
			if strings.EqualFold(t, hex.EncodeToString(sum[:])) {
				options.Roots = x509.NewCertPool()
				options.Roots.AddCert(cert)
				_, err = leaf.Verify(options)
			}
		}
	}
	return err
}
