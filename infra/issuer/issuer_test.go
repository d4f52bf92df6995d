package issuer_test

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/rsa"
	"crypto/x509"
	"encoding/json"
	"encoding/pem"
	"strings"
	"testing"

	"github.com/go-jose/go-jose/v4"

	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/finding"
	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/issuer"
)

const url = "https://example.s3.us-east-1.amazonaws.com/k8s/demo/issuer"

func publicPEM(t *testing.T, key any) string {
	t.Helper()
	der, err := x509.MarshalPKIXPublicKey(key)
	if err != nil {
		t.Fatal(err)
	}
	return string(pem.EncodeToMemory(&pem.Block{Type: "PUBLIC KEY", Bytes: der}))
}

func ecKey(t *testing.T, curve elliptic.Curve) string {
	t.Helper()
	key, err := ecdsa.GenerateKey(curve, rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	return publicPEM(t, key.Public())
}

func of(t *testing.T, keys string) issuer.Documents {
	t.Helper()
	d, err := issuer.Of(url, keys)
	if err != nil {
		t.Fatal(err)
	}
	return d
}

func TestCheck(t *testing.T) {
	t.Parallel()
	for at, problem := range map[string]string{
		url: "", "https://oidc.example.com": "",
		"http://oidc.example.com":                       "https://",
		"oidc.example.com":                              "https://",
		"https://":                                      "https://",
		"https://oidc.example.com/":                     "slash",
		"https://oidc.example.com?x=1":                  "query",
		"https://oidc.example.com#x":                    "query",
		"https://me@oidc.example.com":                   "user",
		"https://oidc.example.com:8443":                 "port",
		"https://e.example/" + strings.Repeat("a", 255): "255",
		"https://%zz":                                   "URL",
	} {
		switch err := issuer.Check(at); {
		case problem == "" && err != nil:
			t.Errorf("%s: %v", at, err)
		case problem != "" && (err == nil || !strings.Contains(err.Error(), problem)):
			t.Errorf("%s: %v, wanted %s", at, err, problem)
		}
	}
}

// TestDocuments: the id of a key is what kube-apiserver writes into tokens, here one that it has made.
func TestDocuments(t *testing.T) {
	t.Parallel()
	const published = `-----BEGIN PUBLIC KEY-----
MFkwEwYHKoZIzj0CAQYIKoZIzj0DAQcDQgAEH6cuzP8XuD5wal6wf9M6xDljTOPL
X2i8uIp/C/ASqiIGUeeKQtX0/IR3qCXyThP/dbCiHrF3v1cuhBOHY8CLVg==
-----END PUBLIC KEY-----
` // ecdsaPublicKey of k8s.io/kubernetes/pkg/serviceaccount/jwt_test.go, with its id
	ids, err := issuer.KeyIDs(published)
	if err != nil || len(ids) != 1 || ids[0] != "SoABiieYuNx4UdqYvZRVeuC6SihxgLrhLy9peHMHpTc" {
		t.Errorf("%v, %v", ids, err)
	}
	rsaKey, err := rsa.GenerateKey(rand.Reader, 2048)
	if err != nil {
		t.Fatal(err)
	}
	d := of(t, published+ecKey(t, elliptic.P384())+publicPEM(t, rsaKey.Public())+ecKey(t, elliptic.P521()))
	var set jose.JSONWebKeySet
	if err := json.Unmarshal(d.Keys, &set); err != nil || len(set.Keys) != 4 {
		t.Fatalf("%s: %v", d.Keys, err)
	}
	for n, algorithm := range []string{"ES256", "ES384", "RS256", "ES512"} {
		if k := set.Keys[n]; k.Algorithm != algorithm || k.Use != "sig" || !k.IsPublic() {
			t.Errorf("key %d: %+v", n, k)
		}
	}
	var configuration map[string]any
	if err := json.Unmarshal(d.Configuration, &configuration); err != nil || configuration["issuer"] != url || configuration["jwks_uri"] != url+"/openid/v1/jwks" {
		t.Errorf("%s: %v", d.Configuration, err)
	}
	for _, bad := range []string{"", "no key", "-----BEGIN PUBLIC KEY-----\nAAAA\n-----END PUBLIC KEY-----\n", ecKey(t, elliptic.P224())} {
		if _, err := issuer.Of(url, bad); err == nil {
			t.Errorf("%q has documents", bad)
		}
	}
}

// TestDifferences: only what a verifier looks at differs.
func TestDifferences(t *testing.T) {
	t.Parallel()
	first, second, stranger := ecKey(t, elliptic.P256()), ecKey(t, elliptic.P256()), ecKey(t, elliptic.P256())
	wanted := of(t, first+second)
	ids, _ := issuer.KeyIDs(first + second + stranger)
	other, err := issuer.Of("https://other.example.com", first+second)
	if err != nil {
		t.Fatal(err)
	}
	// A key under the id of another one.
	swapped := strings.Replace(string(of(t, first+stranger).Keys), ids[2], ids[1], 1)
	for name, tt := range map[string]struct {
		shown issuer.Documents
		words []string
	}{
		"same":      {wanted, nil},
		"order":     {of(t, second+first), nil},
		"more said": {issuer.Documents{Configuration: []byte(strings.Replace(string(wanted.Configuration), "{", `{"claims_supported":["sub"],`, 1)), Keys: wanted.Keys}, nil},
		"a missing": {of(t, first), []string{"token key " + ids[1] + ": not shown"}},
		"one more":  {of(t, first+second+stranger), []string{"token key " + ids[2] + ": shown, and not a key of the cluster"}},
		"another":   {issuer.Documents{Configuration: wanted.Configuration, Keys: []byte(swapped)}, []string{"token key " + ids[1] + ": not shown", "token key " + ids[1] + ": shown, and not a key of the cluster"}},
		"issuer":    {issuer.Documents{Configuration: other.Configuration, Keys: wanted.Keys}, []string{`issuer: found "https://other.example.com", wanted "` + url + `"`, "jwks_uri"}},
		"no JSON":   {issuer.Documents{Configuration: []byte("<html>"), Keys: []byte("[")}, []string{".well-known/openid-configuration: is no JSON", "openid/v1/jwks: is no JSON"}},
	} {
		differs := wanted.Differences(tt.shown)
		if len(differs) != len(tt.words) {
			t.Errorf("%s: %s", name, finding.Words(differs))
			continue
		}
		for n, words := range tt.words {
			if got := finding.Words(differs[n : n+1]); !strings.Contains(got, words) {
				t.Errorf("%s: %s, wanted %s", name, got, words)
			}
		}
	}
}
