package sts_test

import (
	"crypto/sha1" //nolint:gosec // what IAM's thumbprints are
	"encoding/base64"
	"encoding/hex"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	awssts "github.com/aws/aws-sdk-go-v2/service/sts"

	"github.com/k8s-from-scratch/terraform-provider-k8s/internal/lab/cloud/cloudtest"
	"github.com/k8s-from-scratch/terraform-provider-k8s/internal/lab/cloud/iam"
)

// issuerServer shows the keys of an issuer where its configuration document says.
func issuerServer(t *testing.T, keys []byte) *httptest.Server {
	t.Helper()
	var server *httptest.Server
	server = httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		switch r.URL.Path {
		case "/.well-known/openid-configuration":
			_, _ = fmt.Fprintf(w, `{"issuer":%q,"jwks_uri":%q,"id_token_signing_alg_values_supported":["ES256"]}`, server.URL, server.URL+"/keys")
		case "/keys":
			_, _ = w.Write(keys)
		default:
			http.NotFound(w, r)
		}
	}))
	t.Cleanup(server.Close)
	return server
}

// TestWebIdentity: STS believes a token only if a provider of the account has signed it for one of its client ids.
func TestWebIdentity(t *testing.T) {
	l, ctx := cloudtest.New(t), t.Context()
	d := l.Account.Identities()
	issuer, stranger := cloudtest.NewIssuer(t), cloudtest.NewIssuer(t)
	server, away := issuerServer(t, issuer.Keys), issuerServer(t, issuer.Keys)
	away.Close()
	other := issuerServer(t, []byte(strings.Replace(string(issuer.Keys), `"kid":"1"`, `"kid":"2"`, 1)))
	sum := sha1.Sum(server.Certificate().Raw) //nolint:gosec // see above
	thumbprint := hex.EncodeToString(sum[:])
	for _, i := range []iam.Issuer{
		{URL: "https://given.example.com", ClientIDs: []string{"aws", "other"}, Keys: issuer.Keys},
		{URL: server.URL, ClientIDs: []string{"aws"}, Thumbprints: []string{strings.ToUpper(thumbprint)}},
		{URL: other.URL, ClientIDs: []string{"aws"}, Thumbprints: []string{thumbprint}},
		{URL: away.URL, ClientIDs: []string{"aws"}, Thumbprints: []string{thumbprint}},
	} {
		cloudtest.Must[iam.Issuer](t)(d.PutIssuer(i))
	}
	var trusted []string
	for _, i := range append(d.Issuers(), iam.Issuer{ARN: "arn:aws:iam::123456789012:oidc-provider/none.example.com"}) {
		trusted = append(trusted, fmt.Sprintf("%q", i.ARN))
	}
	role := cloudtest.Must[iam.Role](t)(d.PutRole("ci", iam.Entity{}, fmt.Sprintf(
		`{"Version":"2012-10-17","Statement":[{"Effect":"Allow","Principal":{"Federated":[%s]},"Action":"sts:AssumeRoleWithWebIdentity"}]}`, strings.Join(trusted, ","))))
	claims := func(change ...any) map[string]any {
		out := map[string]any{"iss": "https://given.example.com", "sub": "run", "aud": "aws", "exp": l.Clock.Now().Add(time.Hour).Unix()}
		for n := 0; n < len(change); n += 2 {
			out[change[n].(string)] = change[n+1]
		}
		return out
	}
	assume := func(token string) (*awssts.AssumeRoleWithWebIdentityOutput, error) {
		return l.STS.AssumeRoleWithWebIdentity(ctx, &awssts.AssumeRoleWithWebIdentityInput{RoleArn: &role.ARN, RoleSessionName: aws.String("ci"), WebIdentityToken: &token})
	}
	part := func(text string) string { return base64.RawURLEncoding.EncodeToString([]byte(text)) }
	good := issuer.Sign(t, claims())
	unsigned := part(`{"alg":"none"}`) + "." + strings.Split(good, ".")[1] + "."
	for name, test := range map[string]struct{ token, code, says string }{
		"given keys":                  {good, "", ""},
		"the issuer's keys":           {issuer.Sign(t, claims("iss", server.URL)), "", ""},
		"one audience in a list":      {issuer.Sign(t, claims("aud", []string{"other"})), "", ""},
		"several audiences":           {issuer.Sign(t, claims("aud", []string{"nobody", "other"})), "InvalidIdentityToken", "more than one audience"},
		"a party":                     {issuer.Sign(t, claims("aud", []string{"nobody", "other"}, "azp", "aws")), "", ""},
		"another party":               {issuer.Sign(t, claims("azp", "nobody")), "InvalidIdentityToken", "Incorrect token audience"},
		"issued at no time":           {issuer.Sign(t, claims("iat", nil)), "InvalidIdentityToken", "iat"},
		"issued in parts of a second": {issuer.Sign(t, claims("iat", 1700000000.5)), "", ""},
		"another key id":              {issuer.Sign(t, claims("iss", other.URL)), "InvalidIdentityToken", "Couldn't retrieve verification key"},
		"somebody else's signature":   {stranger.Sign(t, claims()), "InvalidIdentityToken", "signature"},
		"no signature":                {unsigned, "InvalidIdentityToken", "not a valid JWT"},
		"no token":                    {"e30", "InvalidIdentityToken", "not a valid JWT"},
		"another audience":            {issuer.Sign(t, claims("aud", "nobody")), "InvalidIdentityToken", "Incorrect token audience"},
		"no provider of the account":  {issuer.Sign(t, claims("iss", "https://none.example.com")), "InvalidIdentityToken", "No OpenIDConnect provider found in your account for https://none.example.com"},
		"no subject":                  {issuer.Sign(t, claims("sub", "")), "InvalidIdentityToken", "sub"},
		"expired":                     {issuer.Sign(t, claims("exp", l.Clock.Now().Add(-6*time.Minute).Unix())), "ExpiredTokenException", "Token expired"},
		"expired a moment ago":        {issuer.Sign(t, claims("exp", l.Clock.Now().Add(-time.Minute).Unix())), "", ""},
		"the issuer is away":          {issuer.Sign(t, claims("iss", away.URL)), "InvalidIdentityToken", "Couldn't retrieve verification key"},
	} {
		out, err := assume(test.token)
		if cloudtest.Refused(t, err, test.code); err != nil && !strings.Contains(err.Error(), test.says) {
			t.Errorf("%s: %v", name, err)
		}
		if test.code == "" && (err != nil || *out.SubjectFromWebIdentityToken != "run") {
			t.Errorf("%s: %v, %v", name, out, err)
		}
	}
	// A certificate for another name is not believed, and neither is another certificate than the one with the thumbprint is not believed.
	elsewhere := strings.Replace(server.URL, "127.0.0.1", "127.0.0.2", 1)
	for _, i := range []iam.Issuer{
		{URL: elsewhere, ClientIDs: []string{"aws"}, Thumbprints: []string{thumbprint}},
		{URL: server.URL, ClientIDs: []string{"aws"}, Thumbprints: []string{strings.Repeat("0", 40)}},
	} {
		cloudtest.Must[iam.Issuer](t)(d.PutIssuer(i))
		_, err := assume(issuer.Sign(t, claims("iss", i.URL)))
		cloudtest.Refused(t, err, "InvalidIdentityToken")
	}
}
