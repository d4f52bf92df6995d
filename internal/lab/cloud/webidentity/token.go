// Package webidentity decides whether STS believes a token of an OpenID Connect provider: one of the account's
// providers has signed it for one of its client ids.
package webidentity

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/coreos/go-oidc/v3/oidc"
	"github.com/go-jose/go-jose/v4"
	"github.com/go-jose/go-jose/v4/jwt"

	"github.com/k8s-from-scratch/terraform-provider-k8s/internal/lab/cloud/iam"
	"github.com/k8s-from-scratch/terraform-provider-k8s/internal/lab/cloud/wire"
)

// Token is what STS looks at in a token (RFC 7519, section 4.1).
type Token struct {
	Issuer    string           `json:"iss"`
	Subject   string           `json:"sub"`
	Audiences jwt.Audience     `json:"aud"`
	Party     string           `json:"azp"` // https://openid.net/specs/openid-connect-core-1_0.html#IDToken
	Expires   *jwt.NumericDate `json:"exp"`
	Issued    *jwt.NumericDate `json:"iat"`
	// https://docs.aws.amazon.com/IAM/latest/UserGuide/id_session-tags.html
	Tags struct {
		Principal map[string][]string `json:"principal_tags"`
	} `json:"https://aws.amazon.com/tags"`
	Source string `json:"https://aws.amazon.com/source_identity"`
	// Client is the party or else the audience, which is one of the provider's client ids.
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

// maxKeys is how many keys of a kind an issuer may show.
// https://docs.aws.amazon.com/IAM/latest/UserGuide/id_roles_providers_create_oidc.html
const maxKeys = 100

// maxShown bounds what an issuer shows.
const maxShown = 1 << 20

func invalid(format string, args ...any) error {
	return wire.Refuse("InvalidIdentityToken", format, args...)
}

// Verify returns what a token says. issuer finds a provider of the account. way gets the way to issuers over the internet,
// and returns the one to take. The issuer is asked for its keys each time. Refusals are *wire.Error.
func Verify(token string, issuer func(url string) (iam.Issuer, bool), way func(http.RoundTripper) http.RoundTripper, now time.Time) (Token, error) {
	var said Token
	signed, err := jwt.ParseSigned(token, algorithms)
	if err != nil || signed.UnsafeClaimsWithoutVerification(&said) != nil {
		return said, invalid("The ID Token provided is not a valid JWT. (You may see this error if you sent an Access Token)")
	}
	if said.Issuer == "" || said.Subject == "" || len(said.Audiences) == 0 || said.Expires == nil || said.Issued == nil {
		return said, invalid("Missing a required claim: iss, sub, aud, exp and iat are required")
	}
	i, ok := issuer(said.Issuer)
	if !ok {
		return said, invalid("No OpenIDConnect provider found in your account for %s", said.Issuer)
	}
	if now.After(said.Expires.Time().Add(leeway)) {
		return said, wire.Refuse("ExpiredTokenException", "Token expired: current date/time %d must be before the expiration date/time %d", now.Unix(), *said.Expires)
	}
	if len(said.Audiences) > 1 && said.Party == "" {
		return said, invalid("Token audience contains more than one audience while authorized party is not present")
	}
	if said.Client = cmp.Or(said.Party, said.Audiences[0]); !slices.Contains(i.ClientIDs, said.Client) {
		return said, invalid("Incorrect token audience")
	}
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	keys, err := keysOf(ctx, i, way)
	if err == nil {
		keys, err = named(keys, signed)
	}
	if err != nil {
		return said, invalid("Couldn't retrieve verification key from your identity provider, please reference AssumeRoleWithWebIdentity documentation for requirements")
	}
	given := &oidc.StaticKeySet{}
	for _, key := range keys {
		given.PublicKeys = append(given.PublicKeys, key.Key)
	}
	if _, err := given.VerifySignature(ctx, token); err != nil {
		return said, invalid("The signature of the ID Token is not valid")
	}
	return said, nil
}

// keysOf returns the keys of an issuer, which shows them where its configuration document says.
// https://openid.net/specs/openid-connect-discovery-1_0.html
func keysOf(ctx context.Context, i iam.Issuer, way func(http.RoundTripper) http.RoundTripper) ([]jose.JSONWebKey, error) {
	if len(i.Keys) > 0 {
		var given jose.JSONWebKeySet
		err := json.Unmarshal(i.Keys, &given)
		return given.Keys, err
	}
	at, err := url.Parse(i.URL)
	if err != nil {
		return nil, err
	}
	client := &http.Client{Transport: way(&http.Transport{TLSClientConfig: trusting(at.Hostname(), i.Thumbprints), DisableKeepAlives: true}), Timeout: patience}
	provider, err := oidc.NewProvider(oidc.ClientContext(ctx, client), i.URL)
	if err != nil {
		return nil, err
	}
	var shown struct {
		Keys string `json:"jwks_uri"`
	}
	if err := provider.Claims(&shown); err != nil {
		return nil, err
	}
	if !strings.HasPrefix(shown.Keys, "https://") {
		return nil, fmt.Errorf("%q is not a URL of keys", shown.Keys)
	}
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, shown.Keys, http.NoBody)
	if err != nil {
		return nil, err
	}
	answer, err := client.Do(r)
	if err != nil {
		return nil, err
	}
	defer answer.Body.Close() //nolint:errcheck // read only
	var set jose.JSONWebKeySet
	if answer.StatusCode != http.StatusOK {
		return nil, errors.New(answer.Status)
	}
	if err := json.NewDecoder(io.LimitReader(answer.Body, maxShown)).Decode(&set); err != nil {
		return nil, err
	}
	kinds := map[string]int{}
	for _, key := range set.Keys {
		kind := fmt.Sprintf("%T", key.Key)
		if kinds[kind]++; kinds[kind] > maxKeys {
			return nil, fmt.Errorf("there are more than %d keys", maxKeys)
		}
	}
	return set.Keys, nil
}

// named returns the keys that may have signed a token.
func named(keys []jose.JSONWebKey, token *jwt.JSONWebToken) ([]jose.JSONWebKey, error) {
	id := token.Headers[0].KeyID
	keys = slices.DeleteFunc(keys, func(k jose.JSONWebKey) bool { return id != "" && k.KeyID != id })
	if len(keys) == 0 {
		return nil, fmt.Errorf("there is no key %q", id)
	}
	return keys, nil
}
