package cloudtest

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"encoding/json"
	"maps"
	"testing"
	"time"

	"github.com/go-jose/go-jose/v4"
	"github.com/go-jose/go-jose/v4/jwt"
)

// Issuer signs the tokens of an OpenID Connect provider.
type Issuer struct {
	// Keys is its JSON Web Key Set.
	Keys json.RawMessage

	signer jose.Signer
}

// NewIssuer makes an issuer with a key of its own.
func NewIssuer(t *testing.T) *Issuer {
	t.Helper()
	key := Must[*ecdsa.PrivateKey](t)(ecdsa.GenerateKey(elliptic.P256(), rand.Reader))
	public := jose.JSONWebKeySet{Keys: []jose.JSONWebKey{{Key: key.Public(), KeyID: "1", Algorithm: string(jose.ES256), Use: "sig"}}}
	return &Issuer{
		Keys:   Must[[]byte](t)(json.Marshal(public)),
		signer: Must[jose.Signer](t)(jose.NewSigner(jose.SigningKey{Algorithm: jose.ES256, Key: jose.JSONWebKey{Key: key, KeyID: "1"}}, nil)),
	}
}

// Sign returns a token with claims, which are a JSON object, and which gets the claim iat if it has none.
func (i *Issuer) Sign(t *testing.T, claims map[string]any) string {
	t.Helper()
	if _, given := claims["iat"]; !given {
		claims = maps.Clone(claims)
		claims["iat"] = time.Now().Unix()
	}
	return Must[string](t)(jwt.Signed(i.signer).Claims(claims).Serialize())
}
