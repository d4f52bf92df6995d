package pki

import (
	"bytes"
	"context"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/invalid"
)

// Given is an authority that is given instead of generated, in PEM. Printing it shows no key.
//
// Its own certificate is the only anchor of client certificates: whatever else its issuer has
// signed logs in nowhere. The chain is for programs that verify servers and accept no anchor but a
// root: OpenSSL's default, and so HAProxy's and Python's.
type Given struct {
	KeyPair         // KeyPEM is empty if it is not at hand
	ChainPEM []byte // the certificates above it, up to a root; only of the Kubernetes CA
}

// Authorities are given authorities, by kind and generation.
type Authorities map[Kind]map[int]Given

// Fields of an authority in errors: `authorities.kubernetes_ca["2"].certificate_pem`.
const (
	fieldCertificate = "certificate_pem"
	fieldChain       = "chain_pem"
	fieldKey         = "private_key_wo"
)

// GivenField returns the path of a field of a given authority, or of the authority if field is empty.
func GivenField(k Kind, generation int, field string) string {
	at := fmt.Sprintf("authorities.%s[\"%d\"]", k, generation)
	if field == "" {
		return at
	}
	return at + "." + field
}

// AuthorityKinds returns the kinds that are authorities.
func AuthorityKinds() []Kind { return []Kind{KindKubernetesCA, KindEtcdCA, KindFrontProxyCA} }

// each calls f with every authority, in a fixed order.
func (a Authorities) each(f func(k Kind, generation int, g Given)) {
	for _, k := range AuthorityKinds() {
		for _, n := range slices.Sorted(maps.Keys(a[k])) {
			f(k, n, a[k][n])
		}
	}
}

// Check returns what is wrong with authorities, as far as their fields are known; empty ones are
// not. have are the public entries of the key store. An authority that is there must be the same;
// it is not checked again, so that one that has expired can still be rotated. One that is not there
// must pass [CheckAuthority].
func (a Authorities) Check(wanted Generations, have map[string]string, now time.Time) invalid.Fields {
	var errs invalid.Fields
	within := func(k Kind, n int, of invalid.Fields) {
		for _, e := range of {
			errs = append(errs, &invalid.Field{Field: GivenField(k, n, e.Field), Problem: e.Problem, Missing: e.Missing, Err: e.Err})
		}
	}
	a.each(func(k Kind, n int, g Given) {
		stored, exists := have[PublicName(k, n)]
		switch {
		case len(g.CertPEM) == 0:
		case !slices.Contains(wanted.Of(k), n):
			errs.Say(GivenField(k, n, ""), "Unknown generation", "generation %d is not in generations.%s = %s: add it there, or remove it here",
				n, k, FormatGenerations(wanted.Of(k)))
		case !exists:
			within(k, n, CheckAuthority(k, g, now))
		case len(g.CertPEM) > 0 && !sameCertificate(g.CertPEM, []byte(stored)):
			next := slices.Max(wanted.Of(k)) + 1
			errs.Say(GivenField(k, n, fieldCertificate), "Another authority", "generation %d of %s has another certificate, and it cannot change: "+
				"give this one as a new generation, authorities.%s = { %d = ... }, and write generations.%s = %s",
				n, k, k, next, k, FormatGenerations(append(wanted.Of(k), next)))
		default:
			_, err := onlyCertificates(g.CertPEM)
			errs.Add(GivenField(k, n, fieldCertificate), "Unusable authority", err)
			if len(g.KeyPEM) > 0 {
				errs.Add(GivenField(k, n, fieldKey), "Unusable private key", checkKey(g.KeyPair))
			}
			within(k, n, checkAbove(k, soleCertificate(g.CertPEM), g, time.Time{}))
		}
	})
	return append(errs, a.checkApart(wanted, have)...)
}

// MissingChains returns an error for every wanted generation of the Kubernetes CA that is an intermediate and is not given: what
// is above it is nowhere else. have are the public entries of the key store.
func (a Authorities) MissingChains(wanted Generations, have map[string]string) invalid.Fields {
	var errs invalid.Fields
	for _, n := range wanted.Of(KindKubernetesCA) {
		cert := soleCertificate([]byte(have[PublicName(KindKubernetesCA, n)]))
		if cert == nil || selfSigned(cert) || len(a[KindKubernetesCA][n].CertPEM) > 0 {
			continue
		}
		errs.Say(GivenField(KindKubernetesCA, n, ""), "Missing chain", "generation %d of %s was given, and %s has issued it: give it again, with certificate_pem and chain_pem, as long as "+
			"it is in generations.%s. The key store does not have the chain, without which HAProxy would accept no API server", n, KindKubernetesCA, cert.Issuer, KindKubernetesCA)
	}
	return errs
}

// checkApart returns an error for authorities of different kinds that are the same, or of which one
// has issued the other, and for a given generation that is another one of its kind. A certificate of one kind would be one of the
// other as well: with the front proxy's authority every client could name itself as it likes, with etcd's it could read and
// write everything. have are the public entries of the key store, of which those count that are wanted.
func (a Authorities) checkApart(wanted Generations, have map[string]string) invalid.Fields {
	all := Authorities{}
	for _, k := range AuthorityKinds() {
		all[k] = maps.Clone(a[k])
		for _, n := range wanted.Of(k) {
			if stored := have[PublicName(k, n)]; stored != "" && len(a[k][n].CertPEM) == 0 {
				if all[k] == nil {
					all[k] = map[int]Given{}
				}
				all[k][n] = Given{KeyPair: KeyPair{CertPEM: []byte(stored)}}
			}
		}
	}
	var errs invalid.Fields
	said := map[string]bool{}
	all.each(func(k Kind, n int, g Given) {
		cert := soleCertificate(g.CertPEM)
		all.each(func(other Kind, m int, o Given) {
			c := soleCertificate(o.CertPEM)
			if cert == nil || c == nil || k == other && m >= n {
				return
			}
			at, is, than := GivenField(k, n, fieldCertificate), fmt.Sprintf("this is generation %d of %s as well", m, other), "whoever has a certificate of one would have one of the other. Give each kind an authority of its own"
			switch {
			case k == other && cert.Equal(c):
				than = "nothing would be rotated. Give another certificate, with another key if the former one may be known to others"
			case k == other || !samePublicKey(cert.PublicKey, c.PublicKey) && !issued(cert, c, o.ChainPEM):
				return
			case !samePublicKey(cert.PublicKey, c.PublicKey):
				is = fmt.Sprintf("this authority has issued generation %d of %s", m, other)
			case slices.Index(AuthorityKinds(), k) < slices.Index(AuthorityKinds(), other) && len(a[other][m].CertPEM) > 0:
				return // said of the other
			}
			if len(a[k][n].CertPEM) == 0 {
				at = GivenField(other, m, fieldCertificate)
				is = fmt.Sprintf("generation %d of %s, which the key store has, is this authority or has issued it", n, k)
			}
			if len(a[k][n].CertPEM)+len(a[other][m].CertPEM) > 0 && !said[at] {
				said[at] = true
				errs.Say(at, "Authorities that are not apart", "%s: %s", is, than)
			}
		})
	})
	return errs
}

// issued reports whether an authority has issued another one, at any distance that the chain shows.
func issued(by, cert *x509.Certificate, chain []byte) bool {
	above, _ := parseCertificates(chain)
	return cert.CheckSignatureFrom(by) == nil ||
		slices.ContainsFunc(above, func(c *x509.Certificate) bool { return samePublicKey(c.PublicKey, by.PublicKey) })
}

// Chain returns the certificates above the Kubernetes CA's generations, without duplicates.
func (a Authorities) Chain(g Generations) string {
	var out []string
	for _, n := range g.Of(KindKubernetesCA) {
		for _, c := range Certificates(string(a[KindKubernetesCA][n].ChainPEM)) {
			if !slices.Contains(out, c) {
				out = append(out, c)
			}
		}
	}
	return strings.Join(out, "")
}

// Secret returns the given key that the key store has under a name, as it has it: PKCS #8. It is
// false if none is given.
func (a Authorities) Secret(name string) (value []byte, ok bool) {
	a.each(func(k Kind, n int, g Given) {
		if SecretName(k, n) != name {
			return
		}
		if key, err := parseKey(g.KeyPEM); err == nil {
			der, err := x509.MarshalPKCS8PrivateKey(key)
			value, ok = encode(pemPrivateKey, der), err == nil
		}
	})
	return value, ok
}

// certificate returns the certificate of a generation as the key store has it.
func (a Authorities) certificate(k Kind, generation int) ([]byte, bool) {
	if c := soleCertificate(a[k][generation].CertPEM); c != nil {
		return encode(pemCertificate, c.Raw), true
	}
	return nil, false
}

// soleCertificate returns the first certificate, nil if there is none.
func soleCertificate(b []byte) *x509.Certificate {
	if certs, err := parseCertificates(b); err == nil {
		return certs[0]
	}
	return nil
}

func sameCertificate(a, b []byte) bool {
	x, y := soleCertificate(a), soleCertificate(b)
	return x != nil && y != nil && x.Equal(y)
}

// selfSigned reports whether a certificate is that of a root. Nobody looks at its signature, which
// may be an old one.
func selfSigned(c *x509.Certificate) bool {
	err := c.CheckSignatureFrom(c)
	var old x509.InsecureAlgorithmError
	return bytes.Equal(c.RawSubject, c.RawIssuer) && (err == nil || errors.As(err, &old))
}

// issuers returns the certificates that a server sends after its own: those of its authority and
// above it, in PEM, without a root.
func issuers(certs []*x509.Certificate) []byte {
	var out []byte
	for at := certs[0]; at != nil && !selfSigned(at); {
		out = append(out, encode(pemCertificate, at.Raw)...)
		next := slices.IndexFunc(certs, func(c *x509.Certificate) bool { return !c.Equal(at) && at.CheckSignatureFrom(c) == nil })
		if next < 0 || len(out) > maxChainBytes {
			break
		}
		at = certs[next]
	}
	return out
}

// maxChainBytes bounds a chain: that of a certificate that leads in a circle has no end.
const maxChainBytes = 64 << 10

// pemBlocks returns the PEM blocks of a text.
func pemBlocks(b []byte) []*pem.Block {
	var out []*pem.Block
	for {
		var block *pem.Block
		if block, b = pem.Decode(b); block == nil {
			return out
		}
		out = append(out, block)
	}
}

// MissingKeys returns an error for every authority whose key is neither given nor in the key store.
func (a Authorities) MissingKeys(stored func(Kind, int) bool) invalid.Fields {
	var errs invalid.Fields
	a.each(func(k Kind, n int, g Given) {
		if len(g.KeyPEM) == 0 && !stored(k, n) {
			errs.Miss(GivenField(k, n, fieldKey), "Missing private key", "the key store does not have the private key of generation %d of %s: set private_key_wo. "+
				"Once the key store has it, it can be removed here", n, k)
		}
	})
	return errs
}

// checkGiven returns what is wrong with the given authorities, before anything is written.
func (b *bootstrap) checkGiven(ctx context.Context) error {
	have := map[string]string{}
	errs := b.opts.Authorities.MissingKeys(func(k Kind, n int) bool { return b.has(SecretName(k, n)) })
	for _, k := range AuthorityKinds() {
		for _, n := range b.opts.Generations.Of(k) {
			name := PublicName(k, n)
			if !b.has(name) {
				continue
			}
			v, err := b.store.Get(ctx, name)
			if err != nil {
				return fmt.Errorf("read %s: %w", name, err)
			}
			have[name] = string(v)
		}
	}
	b.opts.Authorities.each(func(k Kind, n int, g Given) {
		if len(g.CertPEM) == 0 {
			errs.Miss(GivenField(k, n, fieldCertificate), "Missing certificate", "there is no certificate")
			return
		}
		if !b.has(SecretName(k, n)) || b.has(PublicName(k, n)) {
			return
		}
		// An apply that was interrupted has left a key.
		key, err := b.store.Get(ctx, SecretName(k, n))
		if err == nil {
			_, err = LoadAuthority(KeyPair{CertPEM: g.CertPEM, KeyPEM: key})
		}
		if err != nil {
			errs.Say(GivenField(k, n, fieldCertificate), "Key of another authority", "an interrupted apply has left a private key of generation %d of %s in the key store, and it is not that of this certificate: "+
				"give this authority as generation %d", n, k, slices.Max(b.opts.Generations.Of(k))+1)
		}
	})
	errs = append(errs, b.opts.Authorities.MissingChains(b.opts.Generations, have)...)
	return append(errs, b.opts.Authorities.Check(b.opts.Generations, have, b.now)...).Err()
}
