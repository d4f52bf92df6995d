package sts

import (
	"encoding/base64"
	"encoding/json"
	"maps"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/k8s-from-scratch/terraform-provider-k8s/internal/lab/cloud/wire"
)

// WithWebIdentity is the action whose requests are not signed: the token says who calls.
const WithWebIdentity = "AssumeRoleWithWebIdentity"

type webIdentityRequest struct {
	RoleArn          string
	RoleSessionName  string
	WebIdentityToken string
	ProviderId       string
	Policy           string
	DurationSeconds  *int
	PolicyArns       struct {
		Members []struct {
			Arn string `query:"arn"`
		} `query:"member"`
	}
}

type webIdentityResult struct {
	assumeRoleResult
	Subject  string `xml:"SubjectFromWebIdentityToken"`
	Audience string `xml:"Audience"`
	Provider string `xml:"Provider"`
}

// assumeRoleWithWebIdentity makes a session for the bearer of an OpenID Connect token, if the role
// trusts the token's issuer as an identity provider of the account. It checks the token's form and
// time, not its signature.
func (s *Service) assumeRoleWithWebIdentity(form url.Values) (any, error) {
	var in webIdentityRequest
	if err := wire.Decode(form, &in); err != nil {
		return nil, err
	}
	c, err := parseToken(in.WebIdentityToken)
	if err != nil {
		return nil, err
	}
	if expires := time.Unix(c.Expires, 0); s.cfg.Now().After(expires) {
		return nil, wire.Refuse("ExpiredTokenException", "Token expired: current date/time %d must be before the expiration date/time %d", s.cfg.Now().Unix(), c.Expires)
	}
	issuer := strings.TrimPrefix(c.Issuer, "https://")
	who := Assumption{"arn:" + s.cfg.Partition + ":iam::" + s.cfg.AccountID + ":oidc-provider/" + issuer, map[string][]string{
		issuer + ":aud": {c.audience()}, issuer + ":sub": {c.Subject},
	}}
	actions := []string{WithWebIdentity}
	asked := assumeRoleRequest{RoleArn: in.RoleArn, RoleSessionName: in.RoleSessionName, SourceIdentity: c.Source, DurationSeconds: in.DurationSeconds}
	asked.Policy, asked.PolicyArns = in.Policy, in.PolicyArns
	for _, key := range slices.Sorted(maps.Keys(c.Tags.Principal)) {
		values := c.Tags.Principal[key]
		if len(values) != 1 {
			return nil, wire.Refuse("InvalidIdentityToken", "The tag %s of the token has %d values: want 1", key, len(values))
		}
		asked.Tags.Members = append(asked.Tags.Members, sessionTag{key, values[0]})
		who.Context["aws:RequestTag/"+key] = values
		who.Context["aws:TagKeys"] = append(who.Context["aws:TagKeys"], key)
	}
	if len(asked.Tags.Members) > 0 {
		actions = append(actions, "TagSession")
	}
	if c.Source != "" {
		actions = append(actions, "SetSourceIdentity")
		who.Context["sts:SourceIdentity"] = []string{c.Source}
	}
	denied := func(action string) error {
		return wire.RefuseWith(403, "AccessDenied", "Not authorized to perform sts:%s", action)
	}
	made, err := s.roleSession(who, actions, denied, session{}, asked)
	if err != nil {
		return nil, err
	}
	return webIdentityResult{made, c.Subject, c.audience(), c.Issuer}, nil
}

// claims are those of a token that STS looks at (RFC 7519, section 4.1).
type claims struct {
	Issuer    string          `json:"iss"`
	Subject   string          `json:"sub"`
	Audiences json.RawMessage `json:"aud"` // a text, or a list of them
	Expires   int64           `json:"exp"` // seconds since the epoch
	// https://docs.aws.amazon.com/IAM/latest/UserGuide/id_session-tags.html
	Tags struct {
		Principal map[string][]string `json:"principal_tags"`
	} `json:"https://aws.amazon.com/tags"`
	Source string `json:"https://aws.amazon.com/source_identity"`
}

func (c claims) audience() string {
	var one string
	var many []string
	if json.Unmarshal(c.Audiences, &one) == nil {
		return one
	}
	if json.Unmarshal(c.Audiences, &many) == nil && len(many) > 0 {
		return many[0]
	}
	return ""
}

// parseToken reads a JSON Web Token.
func parseToken(token string) (c claims, err error) {
	bad := wire.Refuse("InvalidIdentityToken", "The ID Token provided is not a valid JWT. (You may see this error if you sent an Access Token)")
	parts := strings.Split(token, ".")
	if len(parts) != 3 {
		return c, bad
	}
	raw, err := base64.RawURLEncoding.DecodeString(parts[1])
	if err != nil || json.Unmarshal(raw, &c) != nil {
		return c, bad
	}
	if c.Issuer == "" || c.Subject == "" || c.audience() == "" || c.Expires == 0 {
		return c, wire.Refuse("InvalidIdentityToken", "Missing a required claim: iss, sub, aud and exp are required")
	}
	return c, nil
}
