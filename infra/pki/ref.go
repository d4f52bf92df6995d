package pki

import (
	"bytes"
	"encoding/pem"
	"slices"
	"strings"
)

// bundle returns the field with a kind's public parts, nil for a kind that has none.
func (r *Ref) bundle(k Kind) *string {
	switch k {
	case KindKubernetesCA:
		return &r.KubernetesCA
	case KindEtcdCA:
		return &r.EtcdCA
	case KindFrontProxyCA:
		return &r.FrontProxyCA
	case KindServiceAccount:
		return &r.ServiceAccountPublicKey
	}
	return nil
}

// Bundle returns the PEM bundle of an authority, the issuing certificate first; empty if the name
// is unknown.
func (r Ref) Bundle(ca CAName) string {
	if b := r.bundle(ca.Kind()); b != nil {
		return *b
	}
	return ""
}

// ServerBundle returns the PEM bundle with which servers are verified: Bundle, and the chain up to
// the root of a given Kubernetes CA. Nobody may verify clients with it: whatever the root has signed
// would log in.
func (r Ref) ServerBundle(ca CAName) string {
	if ca == KubernetesCA {
		return r.KubernetesCA + r.KubernetesCAChain
	}
	return r.Bundle(ca)
}

// IssuingCertificate returns only the certificate with which an authority issues.
func (r Ref) IssuingCertificate(ca CAName) string {
	if parts := splitPEM(r.Bundle(ca)); len(parts) > 0 {
		return parts[0]
	}
	return r.Bundle(ca)
}

// IssuingKey returns the name in the store of the key with which an authority issues.
func (r Ref) IssuingKey(ca CAName) string {
	return SecretName(ca.Kind(), r.Generations.Issuing(ca.Kind()))
}

// Public returns the public entries of the key store, by name.
func (r Ref) Public() map[string]string {
	out := map[string]string{}
	for _, k := range Kinds() {
		bundle := r.bundle(k)
		if bundle == nil {
			continue
		}
		parts := splitPEM(*bundle)
		for i, n := range r.Generations.Of(k) {
			if i < len(parts) {
				out[PublicName(k, n)] = parts[i]
			}
		}
	}
	if !r.Generations.Equal(Generations{}) {
		out[NameGenerations] = r.Generations.encode()
	}
	return out
}

// Arrange returns the reference with other generations: in another order, or without some. It also
// returns the kinds with a generation that is not in the reference; their bundles, and the keys,
// stay unchanged.
func (r Ref) Arrange(next Generations) (Ref, []Kind) {
	var unknown []Kind
	known := r.Public()
	out := r
	out.Generations = next.full()
	for _, k := range Kinds() {
		old, bundle := r.Generations.Of(k), out.bundle(k)
		if slices.ContainsFunc(next.Of(k), func(n int) bool { return !slices.Contains(old, n) }) {
			unknown = append(unknown, k)
			continue
		}
		if bundle == nil {
			continue
		}
		var joined strings.Builder
		for _, n := range next.Of(k) {
			joined.WriteString(known[PublicName(k, n)])
		}
		*bundle = joined.String()
	}
	if r.Keys != nil && len(unknown) == 0 {
		out.Keys = map[string]string{}
		for _, name := range Names(next) {
			if v, ok := r.Keys[name]; ok {
				out.Keys[name] = v
			}
		}
	}
	return out, unknown
}

// Certificates returns the certificates of a bundle, each in PEM in the same form, so that they can
// be compared.
func Certificates(bundle string) []string {
	var out []string
	for rest := []byte(bundle); ; {
		var block *pem.Block
		if block, rest = pem.Decode(rest); block == nil {
			return out
		}
		if block.Type == pemCertificate {
			out = append(out, string(encode(pemCertificate, block.Bytes)))
		}
	}
}

// splitPEM splits a bundle into its blocks, each with the text before it.
func splitPEM(bundle string) []string {
	var out []string
	for rest := []byte(bundle); ; {
		block, after := pem.Decode(rest)
		if block == nil {
			return out
		}
		part := bytes.TrimSpace(rest[:len(rest)-len(after)])
		out, rest = append(out, string(part)+"\n"), after
	}
}
