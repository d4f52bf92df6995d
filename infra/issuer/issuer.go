// Package issuer knows the issuer of service accounts' tokens as others see it: the rules of its URL, and the two
// documents of OpenID Connect Discovery in which it shows its keys. I/O may not enter, and neither may who reads the
// documents.
package issuer

import (
	"crypto"
	"crypto/ecdsa"
	"crypto/rsa"
	"crypto/sha256"
	"crypto/x509"
	"encoding/base64"
	"encoding/json"
	"encoding/pem"
	"errors"
	"fmt"
	"net/url"
	"slices"
	"strings"

	"github.com/go-jose/go-jose/v4"
)

// Where the documents are below an issuer's URL. kube-apiserver serves its own keys at the same path.
// https://openid.net/specs/openid-connect-discovery-1_0.html
const (
	ConfigurationPath = ".well-known/openid-configuration"
	KeysPath          = "openid/v1/jwks"
)

// URLLimit is how many characters an issuer's URL may have in IAM.
// https://docs.aws.amazon.com/IAM/latest/APIReference/API_CreateOpenIDConnectProvider.html
const URLLimit = 255

// Check returns why a URL cannot be that of an issuer, which kube-apiserver takes and AWS finds.
func Check(issuer string) error {
	u, err := url.Parse(issuer)
	switch {
	case err != nil:
		return errors.New("it is no URL")
	case u.Scheme != "https" || u.Hostname() == "":
		return errors.New("it must begin with https:// and a name of a server")
	case u.User != nil || strings.ContainsAny(issuer, "?#"):
		return errors.New("remove the user, the query or the fragment: an issuer has none")
	case u.Port() != "":
		return errors.New("it has a port, which IAM does not take")
	case strings.ToLower(u.Host) != u.Host || u.String() != issuer:
		return errors.New("write the server's name in small letters, and other characters than those of a URL as %XX")
	case strings.HasSuffix(issuer, "/"):
		return errors.New("it ends with a slash, and tokens must name it letter by letter: remove the slash")
	case len(issuer) > URLLimit:
		return fmt.Errorf("it has %d characters, and IAM takes %d", len(issuer), URLLimit)
	}
	return nil
}

// KeysURL returns the URL at which an issuer shows its keys.
func KeysURL(issuer string) string { return issuer + "/" + KeysPath }

// Documents are what an issuer shows: its configuration, and its keys as a JSON Web Key Set.
type Documents struct{ Configuration, Keys []byte }

// Of returns the documents of an issuer with the given public keys in PEM, of which the first one signs.
func Of(issuer, publicKeysPEM string) (Documents, error) {
	keys, err := keysOf(publicKeysPEM)
	if err != nil {
		return Documents{}, err
	}
	set := jose.JSONWebKeySet{}
	algorithms := []string{}
	for _, k := range keys {
		set.Keys = append(set.Keys, k)
		if !slices.Contains(algorithms, k.Algorithm) {
			algorithms = append(algorithms, k.Algorithm)
		}
	}
	var out Documents
	if out.Keys, err = json.MarshalIndent(set, "", "  "); err != nil {
		return out, fmt.Errorf("keys of the issuer: %w", err)
	}
	out.Configuration, err = json.MarshalIndent(configuration{issuer, KeysURL(issuer), []string{"id_token"}, []string{"public"}, algorithms}, "", "  ")
	return out, err
}

// configuration has the fields that every issuer must show, but those of sign-ins.
type configuration struct {
	Issuer        string   `json:"issuer"`
	KeysURL       string   `json:"jwks_uri"`
	ResponseTypes []string `json:"response_types_supported"`
	SubjectTypes  []string `json:"subject_types_supported"`
	Algorithms    []string `json:"id_token_signing_alg_values_supported"`
}

// KeyIDs returns the ids of public keys in PEM, in their order.
func KeyIDs(publicKeysPEM string) ([]string, error) {
	keys, err := keysOf(publicKeysPEM)
	var ids []string
	for _, k := range keys {
		ids = append(ids, k.KeyID)
	}
	return ids, err
}

func keysOf(publicKeysPEM string) ([]jose.JSONWebKey, error) {
	var out []jose.JSONWebKey
	for rest := []byte(publicKeysPEM); ; {
		var block *pem.Block
		if block, rest = pem.Decode(rest); block == nil {
			break
		}
		key, err := x509.ParsePKIXPublicKey(block.Bytes)
		if err != nil {
			return nil, fmt.Errorf("public key %d: %w", len(out)+1, err)
		}
		algorithm, err := algorithmOf(key)
		if err != nil {
			return nil, fmt.Errorf("public key %d: %w", len(out)+1, err)
		}
		// kube-apiserver names a key by the digest of its DER in the tokens that it signs (keyIDFromPublicKey of
		// k8s.io/kubernetes/pkg/serviceaccount).
		sum := sha256.Sum256(block.Bytes)
		out = append(out, jose.JSONWebKey{Key: key, KeyID: base64.RawURLEncoding.EncodeToString(sum[:]), Algorithm: string(algorithm), Use: "sig"})
	}
	if len(out) == 0 {
		return nil, errors.New("no public key in PEM")
	}
	return out, nil
}

func algorithmOf(key crypto.PublicKey) (jose.SignatureAlgorithm, error) {
	switch k := key.(type) {
	case *rsa.PublicKey:
		return jose.RS256, nil
	case *ecdsa.PublicKey:
		switch k.Curve.Params().BitSize {
		case 256:
			return jose.ES256, nil
		case 384:
			return jose.ES384, nil
		case 521:
			return jose.ES512, nil
		}
	}
	return "", fmt.Errorf("a key of the type %T signs no tokens", key)
}
