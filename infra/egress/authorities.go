package egress

import (
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"strings"
)

// Authorities returns the certificates of authorities in a text in PEM, without anything between them and as every
// program writes them. An error says which block is not the certificate of an authority.
func Authorities(text string) (string, error) {
	var out strings.Builder
	rest := []byte(text)
	for n := 0; ; n++ {
		var block *pem.Block
		block, rest = pem.Decode(rest)
		switch {
		case block == nil && n == 0:
			return "", errors.New("it has no certificate in PEM")
		case block == nil && len(strings.TrimSpace(string(rest))) > 0:
			return "", fmt.Errorf("what follows certificate %d is not PEM", n)
		case block == nil:
			return out.String(), nil
		case block.Type != "CERTIFICATE":
			return "", fmt.Errorf("block %d is a %s: only certificates belong here", n+1, block.Type)
		}
		cert, err := x509.ParseCertificate(block.Bytes)
		switch {
		case err != nil:
			return "", fmt.Errorf("certificate %d: %w", n+1, err)
		case cert.BasicConstraintsValid && !cert.IsCA:
			return "", fmt.Errorf("certificate %d (%s) is not the certificate of an authority: give the certificate of the authority that has issued it", n+1, cert.Subject)
		}
		out.Write(pem.EncodeToMemory(&pem.Block{Type: block.Type, Bytes: block.Bytes}))
	}
}
