// Package signin signs a person in at an issuer of OpenID Connect, as a credential plugin of kubectl does
// (https://kubernetes.io/docs/reference/access-authn-authz/authentication/#client-go-credential-plugins). Tokens are
// kept in a file until they expire, and renewed with a refresh token as long as the issuer allows it.
//
// What may not enter: client certificates, clusters, Terraform.
package signin

import (
	"cmp"
	"context"
	"crypto/sha256"
	"crypto/tls"
	"crypto/x509"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/coreos/go-oidc/v3/oidc"
	"github.com/gofrs/flock"
	"golang.org/x/oauth2"

	"github.com/k8s-from-scratch/terraform-provider-k8s/internal/file"
)

// Defaults of a Request.
const (
	DefaultListen = "localhost:8000"
	// Patience is how long a person has for signing in.
	Patience = 5 * time.Minute
	// spare is how much longer than now a token must be valid to be used: as long as kubectl's request may take.
	spare = time.Minute
)

// DefaultScopes asks for a token that says who the person is, and for a refresh token.
func DefaultScopes() []string {
	return []string{oidc.ScopeOpenID, "profile", "email", oidc.ScopeOfflineAccess}
}

// Request says at which issuer to sign in, and how.
type Request struct {
	Issuer       string // URL, as in the tokens
	ClientID     string
	ClientSecret string // of issuers that give programs on people's computers one; may be empty
	Scopes       []string
	CA           []byte // PEM, beside the system's authorities; may be empty
	// Device has the person sign in on any device, with a code. Otherwise a browser of this computer comes back to
	// Listen, whose URL http://<Listen>/ the issuer must know for this client.
	Device bool
	Listen string
	Cache  string // directory, made if it is missing
	// Show tells the person what to do.
	Show func(format string, args ...any)
	// Browse opens a URL in a browser, if it can. The person is shown the URL as well.
	Browse func(url string)
}

// Token is an ID token, which the API server takes as bearer token, and until when it may be used.
type Token struct {
	ID      string
	Expires time.Time
}

// kept is what the cache has of one issuer and client.
type kept struct {
	ID      string    `json:"id_token"`
	Refresh string    `json:"refresh_token,omitempty"`
	Expires time.Time `json:"expires"`
}

// Get returns a token: the one that is kept if it is still valid, else a renewed one, else that of a new sign-in. Of
// several processes at the same time only one asks the person; the others wait for it.
func Get(ctx context.Context, r Request) (Token, error) {
	if err := os.MkdirAll(r.Cache, 0o700); err != nil {
		return Token{}, err
	}
	name := filepath.Join(r.Cache, r.key()+".json")
	lock := flock.New(name + ".lock")
	ctx, cancel := context.WithTimeout(ctx, Patience)
	defer cancel()
	if _, err := lock.TryLockContext(ctx, 200*time.Millisecond); err != nil {
		return Token{}, fmt.Errorf("another sign-in at %s goes on: %w", r.Issuer, err)
	}
	defer func() { _ = lock.Unlock() }()

	var has kept
	if err := file.ReadJSON(name, &has); err != nil {
		has = kept{} // it cannot be read: sign in again
	}
	if time.Until(has.Expires) > spare {
		return Token{has.ID, has.Expires}, nil
	}
	s, err := r.connect(ctx)
	if err != nil {
		return Token{}, err
	}
	got, err := s.renew(ctx, has.Refresh)
	if err != nil {
		if got, err = s.ask(ctx); err != nil {
			return Token{}, err
		}
	}
	if err := file.WriteJSON(name, got, 0o600); err != nil {
		return Token{}, err
	}
	return Token{got.ID, got.Expires}, nil
}

// key names what is kept. Requests that may get other tokens have other keys.
func (r Request) key() string {
	sum := sha256.Sum256([]byte(strings.Join(append([]string{r.Issuer, r.ClientID}, r.Scopes...), "\n")))
	return hex.EncodeToString(sum[:8])
}

// session is one conversation with an issuer.
type session struct {
	Request
	client   *http.Client // trusts the issuer's authority
	provider *oidc.Provider
	config   oauth2.Config
	nonce    string // of the token that is expected; empty for none
}

func (r Request) connect(ctx context.Context) (*session, error) {
	roots, err := x509.SystemCertPool()
	if err != nil {
		roots = x509.NewCertPool()
	}
	if len(r.CA) > 0 && !roots.AppendCertsFromPEM(r.CA) {
		return nil, errors.New("the authority of the issuer has no certificate in PEM")
	}
	transport := http.DefaultTransport.(*http.Transport).Clone() // with the proxy of the environment
	transport.TLSClientConfig = &tls.Config{RootCAs: roots, MinVersion: tls.VersionTLS12}
	client := &http.Client{Transport: transport, Timeout: 30 * time.Second}
	provider, err := oidc.NewProvider(oidc.ClientContext(ctx, client), r.Issuer)
	if err != nil {
		return nil, fmt.Errorf("asking the issuer what it offers: %w", err)
	}
	return &session{Request: r, client: client, provider: provider, config: oauth2.Config{
		ClientID: r.ClientID, ClientSecret: r.ClientSecret, Endpoint: provider.Endpoint(), Scopes: r.Scopes,
	}}, nil
}

// with returns a context for calls of the issuer.
func (s *session) with(ctx context.Context) context.Context { return oidc.ClientContext(ctx, s.client) }

// renew asks for a new token with a refresh token. An issuer may answer without an ID token (OpenID Connect Core, 12.2).
func (s *session) renew(ctx context.Context, refresh string) (kept, error) {
	if refresh == "" {
		return kept{}, errors.New("there is no refresh token")
	}
	token, err := s.config.TokenSource(s.with(ctx), &oauth2.Token{RefreshToken: refresh}).Token()
	if err != nil {
		return kept{}, err
	}
	got, err := s.verify(ctx, token)
	got.Refresh = cmp.Or(got.Refresh, refresh) // many issuers give no other one
	return got, err
}

// verify checks an ID token as the API server does: issuer, audience, signature and expiry.
func (s *session) verify(ctx context.Context, t *oauth2.Token) (kept, error) {
	raw, _ := t.Extra("id_token").(string)
	if raw == "" {
		return kept{}, fmt.Errorf("%s gave no ID token: the scopes must include %s", s.Issuer, oidc.ScopeOpenID)
	}
	id, err := s.provider.Verifier(&oidc.Config{ClientID: s.ClientID}).Verify(s.with(ctx), raw)
	switch {
	case err != nil:
		return kept{}, fmt.Errorf("the token of %s: %w", s.Issuer, err)
	case s.nonce != "" && id.Nonce != s.nonce:
		return kept{}, fmt.Errorf("the token of %s is for another sign-in", s.Issuer)
	}
	return kept{ID: raw, Refresh: t.RefreshToken, Expires: id.Expiry}, nil
}

// ExecCredential returns the token as kubectl reads it from a credential plugin.
func (t Token) ExecCredential() ([]byte, error) {
	return json.Marshal(map[string]any{
		"apiVersion": "client.authentication.k8s.io/v1", "kind": "ExecCredential",
		"status": map[string]any{"token": t.ID, "expirationTimestamp": t.Expires.UTC().Format(time.RFC3339)},
	})
}
