package fleet

import (
	"crypto/x509"
	"encoding/pem"
	"time"
)

// Certificate is one certificate on one machine.
type Certificate struct {
	Machine  string    `json:"machine"`
	Path     string    `json:"path"`
	Subject  string    `json:"subject"` // common name
	Issuer   string    `json:"issuer"`  // common name
	NotAfter time.Time `json:"not_after"`
}

// Certificates describes the first certificate of a PEM file. It returns nothing for content
// that cannot be parsed.
func Certificates(machine, path string, content []byte) []Certificate {
	block, _ := pem.Decode(content)
	if block == nil {
		return nil
	}
	cert, err := x509.ParseCertificate(block.Bytes)
	if err != nil {
		return nil
	}
	return []Certificate{{Machine: machine, Path: path, Subject: cert.Subject.CommonName,
		Issuer: cert.Issuer.CommonName, NotAfter: cert.NotAfter.UTC()}}
}
