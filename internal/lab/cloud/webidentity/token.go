// Package webidentity decides whether STS believes a token of an OpenID Connect provider: one of the account's
// providers has signed it for one of its client ids.
package webidentity

import (
	"context"
	"encoding/json"
	"net/http"
	"net/url"
	"slices"
	"time"

	"github.com/coreos/go-oidc/v3/oidc"
	"github.com/go-jose/go-jose/v4"
	"github.com/go-jose/go-jose/v4/jwt"

	"github.com/k8s-from-scratch/terraform-provider-k8s/internal/lab/cloud/iam"
	"github.com/k8s-from-scratch/terraform-provider-k8s/internal/lab/cloud/wire"
)

// Token is what STS looks at in a token (RFC 7519, section 4.1).
type Token struct {
	Issuer    string       `json:"iss"`
	Subject   string       `json:"sub"`
	Audiences jwt.Audience `json:"aud"`
	Expires   int64        `json:"exp"` // seconds since the epoch
	// https://docs.aws.amazon.com/IAM/latest/UserGuide/id_session-tags.html
	Tags struct {
		Principal map[string][]string `json:"principal_tags"`
	} `json:"https://aws.amazon.com/tags"`
	Source string `json:"https://aws.amazon.com/source_identity"`
	// Client is the audience that is one of the provider's client ids.
	Client string `json:"-"`
}

// algorithms are what IAM takes signatures of.
// https://docs.aws.amazon.com/IAM/latest/UserGuide/id_roles_providers_create_oidc.html
var algorithms = []jose.SignatureAlgorithm{jose.RS256, jose.RS384, jose.RS512, jose.ES256, jose.ES384, jose.ES512}

// leeway is by how much the clock of an issuer may be behind.
// https://docs.aws.amazon.com/IAM/latest/UserGuide/id_roles_providers_oidc.html
const leeway = 5 * time.Minute

// patience is how long an issuer may take to show its keys.
const patience = 5 * time.Second

func invalid(format string, args ...any) error {
	return wire.Refuse("InvalidIdentityToken", format, args...)
}

// Verify returns what a token says. issuer finds a provider of the account. Refusals are *wire.Error.
func Verify(token string, issuer func(url string) (iam.Issuer, bool), now time.Time) (Token, error) {
	var said Token
	signed, err := jwt.ParseSigned(token, algorithms)
	if err != nil || signed.UnsafeClaimsWithoutVerification(&said) != nil {
		return said, invalid("The ID Token provided is not a valid JWT. (You may see this error if you sent an Access Token)")
	}
	if said.Issuer == "" || said.Subject == "" || len(said.Audiences) == 0 || said.Expires == 0 {
		return said, invalid("Missing a required claim: iss, sub, aud and exp are required")
	}
	i, ok := issuer(said.Issuer)
	if !ok {
		return said, invalid("No OpenIDConnect provider found in your account for %s", said.Issuer)
	}
	if now.After(time.Unix(said.Expires, 0).Add(leeway)) {
		return said, wire.Refuse("ExpiredTokenException", "Token expired: current date/time %d must be before the expiration date/time %d", now.Unix(), said.Expires)
	}
	n := slices.IndexFunc(said.Audiences, func(a string) bool { return slices.Contains(i.ClientIDs, a) })
	if n < 0 {
		return said, invalid("Incorrect token audience")
	}
	said.Client = said.Audiences[n]
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	keys, err := keysOf(ctx, i)
	if err != nil {
		return said, invalid("Couldn't retrieve verification key from your identity provider, please reference AssumeRoleWithWebIdentity documentation for requirements")
	}
	if _, err := keys.VerifySignature(ctx, token); err != nil {
		return said, invalid("The signature of the ID Token is not valid")
	}
	return said, nil
}

// keysOf returns the keys of an issuer, which shows them where its configuration document says.
// https://openid.net/specs/openid-connect-discovery-1_0.html
func keysOf(ctx context.Context, i iam.Issuer) (oidc.KeySet, error) {
	if len(i.Keys) > 0 {
		var set jose.JSONWebKeySet
		if err := json.Unmarshal(i.Keys, &set); err != nil {
			return nil, err
		}
		given := &oidc.StaticKeySet{}
		for _, key := range set.Keys {
			given.PublicKeys = append(given.PublicKeys, key.Key)
		}
		return given, nil
	}
	at, err := url.Parse(i.URL)
	if err != nil {
		return nil, err
	}
	transport := &http.Transport{TLSClientConfig: trusting(at.Hostname(), i.Thumbprints), DisableKeepAlives: true}
	ctx = oidc.ClientContext(ctx, &http.Client{Transport: transport, Timeout: patience})
	provider, err := oidc.NewProvider(ctx, i.URL)
	if err != nil {
		return nil, err
	}
	var shown struct {
		Keys string `json:"jwks_uri"`
	}
	if err := provider.Claims(&shown); err != nil {
		return nil, err
	}
	return oidc.NewRemoteKeySet(ctx, shown.Keys), nil
}
