package webidentity

import (
	"cmp"
	"context"
	"crypto/sha1" //nolint:gosec // what IAM's thumbprints are
	"crypto/tls"
	"crypto/x509"
	"encoding/hex"
	"errors"
	"fmt"
	"net"
	"net/url"
	"strings"
)

// Thumbprint returns that of the last certificate that the server of an issuer shows.
// https://docs.aws.amazon.com/IAM/latest/UserGuide/id_roles_providers_create_oidc_verify-thumbprint.html
func Thumbprint(issuer *url.URL) (string, error) {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	server := &tls.Dialer{Config: &tls.Config{MinVersion: tls.VersionTLS12, InsecureSkipVerify: true}} //nolint:gosec // the certificate is only looked at
	conn, err := server.DialContext(ctx, "tcp", net.JoinHostPort(issuer.Hostname(), cmp.Or(issuer.Port(), "443")))
	if err != nil {
		return "", fmt.Errorf("the certificate of %s: %w", issuer, err)
	}
	defer conn.Close() //nolint:errcheck // nothing was written
	secure, ok := conn.(*tls.Conn)
	if !ok || len(secure.ConnectionState().PeerCertificates) == 0 {
		return "", fmt.Errorf("%s shows no certificate", issuer)
	}
	shown := secure.ConnectionState().PeerCertificates
	sum := sha1.Sum(shown[len(shown)-1].Raw) //nolint:gosec // see above
	return hex.EncodeToString(sum[:]), nil
}

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
