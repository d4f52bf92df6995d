package pki

import (
	"crypto/rand"
	"testing"
	"time"

	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/finding"
)

// FuzzCertificate checks the readers of certificates that are found on machines.
func FuzzCertificate(f *testing.F) {
	pair, err := NewAuthority("demo", 0, time.Unix(1_800_000_000, 0), rand.Reader)
	if err != nil {
		f.Fatal(err)
	}
	f.Add(pair.CertPEM, pair.CertPEM)
	f.Add([]byte("-----BEGIN CERTIFICATE-----\nMAA=\n-----END CERTIFICATE-----\n"), []byte("x"))
	f.Fuzz(func(t *testing.T, cert, bundle []byte) {
		_ = finding.Words(Check(cert, bundle, Request{CommonName: "a", Server: true}, time.Unix(1_800_000_000, 0), 0))
		_, _ = CommonName(cert)
		_, _ = Expiry(cert)
		_, _, _ = RotationDue(bundle)
		_ = IssuedBy(cert, bundle)
	})
}

// FuzzGenerations checks the reader of the generations of keys.
func FuzzGenerations(f *testing.F) {
	f.Add(`{"kubernetes-ca":[1,2]}`, "kubernetes-ca-2.key")
	f.Fuzz(func(t *testing.T, text, name string) {
		if g, err := ParseGenerations(text); err == nil {
			for _, k := range Kinds() {
				_ = g.Issuing(k)
			}
		}
		_ = Owned([]string{name})
	})
}
