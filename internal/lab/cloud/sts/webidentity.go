package sts

import (
	"maps"
	"net/url"
	"slices"
	"strings"

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
// trusts the token's issuer as an identity provider of the account.
func (s *Service) assumeRoleWithWebIdentity(form url.Values) (any, error) {
	var in webIdentityRequest
	if err := wire.Decode(form, &in); err != nil {
		return nil, err
	}
	c, err := s.cfg.Verify(in.WebIdentityToken)
	if err != nil {
		return nil, err
	}
	issuer := strings.TrimPrefix(c.Issuer, "https://")
	who := Assumption{"arn:" + s.cfg.Partition + ":iam::" + s.cfg.AccountID + ":oidc-provider/" + issuer, map[string][]string{
		issuer + ":aud": {c.Client}, issuer + ":sub": {c.Subject},
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
	return webIdentityResult{made, c.Subject, c.Client, c.Issuer}, nil
}
