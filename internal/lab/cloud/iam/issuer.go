package iam

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/url"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/go-jose/go-jose/v4"
)

// Issuer is an OpenID Connect provider of the account. Trust policies name it by its ARN, and STS believes its tokens.
type Issuer struct {
	URL         string            `json:"url"` // of the tokens' claim iss
	ARN         string            `json:"arn"`
	Created     time.Time         `json:"created,omitzero"`
	ClientIDs   []string          `json:"client_ids"`            // for whom tokens may be: the claim aud
	Thumbprints []string          `json:"thumbprints,omitempty"` // SHA-1 of certificates, 40 hexadecimal digits
	Tags        map[string]string `json:"tags,omitempty"`
	// Keys is a JSON Web Key Set (RFC 7517). AWS has none: it always asks the issuer, as the local EC2 does without one.
	Keys json.RawMessage `json:"keys,omitempty"`
}

// Quotas of IAM.
// https://docs.aws.amazon.com/IAM/latest/UserGuide/reference_iam-quotas.html
const (
	maxIssuers     = 100
	maxClientIDs   = 100
	maxClientID    = 255
	maxThumbprints = 5
	maxIssuerURL   = 255
)

// InputError is IAM's InvalidInput.
type InputError string

func (e InputError) Error() string { return string(e) }

var thumbprint = regexp.MustCompile(`^[0-9A-Fa-f]{40}$`)

// Check returns why IAM does not take an issuer.
// https://docs.aws.amazon.com/IAM/latest/APIReference/API_CreateOpenIDConnectProvider.html
func (i *Issuer) Check() error {
	u, err := url.Parse(i.URL)
	switch {
	case err == nil && u.Scheme != "" && u.Scheme != "https":
		return InputError("Invalid Open ID Connect Provider URL. The URL must begin with https://.")
	case err != nil || u.Scheme != "https" || u.Host == "" || u.User != nil || u.RawQuery != "" || u.Fragment != "" || len(i.URL) > maxIssuerURL:
		return fmt.Errorf("%q is not the URL of an OpenID Connect provider: https:// and a host, without a query", i.URL)
	case len(i.ClientIDs) > maxClientIDs:
		return LimitError(fmt.Sprintf("Cannot exceed quota for ClientIdsPerOpenIdConnectProvider: %d", maxClientIDs))
	case len(i.Thumbprints) > maxThumbprints:
		return InputError(fmt.Sprintf("Thumbprint list must contain fewer than %d entries.", maxThumbprints))
	case len(i.Tags) > maxTags:
		return LimitError(fmt.Sprintf("The number of tags has reached the maximum limit of %d.", maxTags))
	}
	for _, id := range i.ClientIDs {
		if id == "" || len(id) > maxClientID {
			return fmt.Errorf("%q is not a client id: 1 to %d characters", id, maxClientID)
		}
	}
	for _, t := range i.Thumbprints {
		if !thumbprint.MatchString(t) {
			return fmt.Errorf("%q is not a thumbprint: 40 hexadecimal digits", t)
		}
	}
	if len(i.Keys) > 0 {
		var set jose.JSONWebKeySet
		if err := json.Unmarshal(i.Keys, &set); err != nil || len(set.Keys) == 0 {
			return errors.New("the keys of an OpenID Connect provider are not a JSON Web Key Set")
		}
		for _, key := range set.Keys {
			if !key.IsPublic() {
				return errors.New("the keys of an OpenID Connect provider are public keys")
			}
		}
	}
	return nil
}

// issuerName returns a URL as ARNs and conditions have it.
func issuerName(issuer string) string { return strings.TrimPrefix(issuer, "https://") }

// MakeIssuer makes an OpenID Connect provider.
func (d *Directory) MakeIssuer(i Issuer) (Issuer, error) {
	i.ARN = d.arn("oidc-provider", "/", issuerName(i.URL))
	if err := i.Check(); err != nil {
		return Issuer{}, err
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	if _, exists := d.saved.Issuers[i.ARN]; exists {
		return Issuer{}, ErrExists
	}
	if len(d.saved.Issuers) >= maxIssuers {
		return Issuer{}, LimitError(fmt.Sprintf("Cannot exceed quota for OpenIdConnectProvidersPerAccount: %d", maxIssuers))
	}
	return i, put(d, d.saved.Issuers, i.ARN, i)
}

// PutIssuer makes an OpenID Connect provider, or changes the one that exists.
func (d *Directory) PutIssuer(i Issuer) (Issuer, error) {
	made, err := d.MakeIssuer(i)
	if !errors.Is(err, ErrExists) {
		return made, err
	}
	err = d.ChangeIssuer(d.arn("oidc-provider", "/", issuerName(i.URL)), func(old *Issuer) error {
		i.ARN, i.Created = old.ARN, old.Created
		*old = i
		return nil
	})
	return i, err
}

// ChangeIssuer changes an OpenID Connect provider.
func (d *Directory) ChangeIssuer(arn string, change func(*Issuer) error) error {
	return changed(d, d.saved.Issuers, arn, func(i *Issuer) error {
		i.ClientIDs = slices.Clone(i.ClientIDs)
		if err := change(i); err != nil {
			return err
		}
		return i.Check()
	})
}

// DeleteIssuer deletes an OpenID Connect provider. ok is false if there is none.
func (d *Directory) DeleteIssuer(arn string) (ok bool, err error) {
	return remove(d, d.saved.Issuers, arn)
}

// Issuers returns the OpenID Connect providers in the order of their ARNs.
func (d *Directory) Issuers() []Issuer {
	d.mu.Lock()
	defer d.mu.Unlock()
	return inOrder(d.saved.Issuers)
}

// IssuerOf returns the OpenID Connect provider with a URL.
func (d *Directory) IssuerOf(issuer string) (Issuer, bool) {
	arn := d.arn("oidc-provider", "/", issuerName(issuer))
	d.mu.Lock()
	defer d.mu.Unlock()
	i, ok := d.saved.Issuers[arn]
	return i, ok && i.URL == issuer
}
