package issuer

import (
	"bytes"
	"crypto"
	"encoding/json"
	"slices"

	"github.com/go-jose/go-jose/v4"

	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/finding"
)

// Differences returns how the documents that an issuer shows differ from the wanted ones, as far as who verifies a
// token looks at them. Members that are not of the wanted documents are none.
func (d Documents) Differences(shown Documents) []finding.Finding {
	var out []finding.Finding
	differs := func(target string, problem finding.Problem, found, wanted string) {
		out = append(out, finding.Finding{Kind: finding.IssuerDocument, Target: target, Problem: problem, Found: found, Wanted: wanted})
	}
	var is, want configuration
	_ = json.Unmarshal(d.Configuration, &want) // it comes from Of
	if json.Unmarshal(shown.Configuration, &is) != nil {
		differs(ConfigurationPath, finding.Unreadable, "", "")
	} else {
		if is.Issuer != want.Issuer {
			differs("issuer", finding.Value, is.Issuer, want.Issuer)
		}
		if is.KeysURL != want.KeysURL {
			differs("jwks_uri", finding.Value, is.KeysURL, want.KeysURL)
		}
	}
	var has, wanted jose.JSONWebKeySet
	_ = json.Unmarshal(d.Keys, &wanted)
	if json.Unmarshal(shown.Keys, &has) != nil {
		differs(KeysPath, finding.Unreadable, "", "")
		return out
	}
	for _, k := range wanted.Keys {
		if !shows(has, k) {
			out = append(out, finding.Finding{Kind: finding.IssuerKey, Target: k.KeyID, Problem: finding.Missing})
		}
	}
	for _, k := range has.Keys {
		if !shows(wanted, k) {
			out = append(out, finding.Finding{Kind: finding.IssuerKey, Target: k.KeyID, Problem: finding.NotWanted})
		}
	}
	return out
}

// Named returns the issuer that a configuration names; empty if it names none.
func Named(shown []byte) string {
	var c configuration
	_ = json.Unmarshal(shown, &c) // what is no configuration names none
	return c.Issuer
}

// ForeignKeys reports whether a set has keys, and none of the wanted ones.
func (d Documents) ForeignKeys(shown []byte) bool {
	var has, wanted jose.JSONWebKeySet
	if json.Unmarshal(shown, &has) != nil || json.Unmarshal(d.Keys, &wanted) != nil {
		return false
	}
	return len(has.Keys) > 0 && !slices.ContainsFunc(has.Keys, func(k jose.JSONWebKey) bool { return shows(wanted, k) })
}

// shows reports whether a set has this very key under its id.
func shows(set jose.JSONWebKeySet, key jose.JSONWebKey) bool {
	want, err := key.Thumbprint(crypto.SHA256)
	for _, k := range set.Key(key.KeyID) {
		if is, bad := k.Thumbprint(crypto.SHA256); err == nil && bad == nil && bytes.Equal(is, want) && k.Algorithm == key.Algorithm && k.Use == key.Use {
			return true
		}
	}
	return false
}
