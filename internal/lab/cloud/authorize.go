package cloud

import (
	"encoding/base64"
	"encoding/json"
	"errors"
	"maps"
	"net/http"
	"net/url"
	"slices"

	"github.com/k8s-from-scratch/terraform-provider-k8s/internal/lab/cloud/ec2"
	"github.com/k8s-from-scratch/terraform-provider-k8s/internal/lab/cloud/iam"
	"github.com/k8s-from-scratch/terraform-provider-k8s/internal/lab/cloud/sts"
	"github.com/k8s-from-scratch/terraform-provider-k8s/internal/lab/cloud/webidentity"
	"github.com/k8s-from-scratch/terraform-provider-k8s/internal/lab/cloud/wire"
)

// authorize refuses a request that the policies of its caller do not allow, in the words of its
// service.
func (a *Account) authorize(req wire.Request, accessKeyID string) error {
	p := a.principal(accessKeyID)
	if p.Unlimited() {
		return nil // and nothing is looked up
	}
	account := iam.Account{ID: a.cfg.AccountID, Region: a.cfg.Region, Resources: a.resources, Defaults: a.compute.Defaults, Profile: a.identities.ProfileAndRole, Session: sts.Assuming, ParameterTags: a.params.Tags, BalancerTags: a.elb.TagsOf,
		Identities: a.identities, Caller: iam.UserName(p.ARN)}
	demands := a.demands(account, iam.Call{Service: req.Protocol.Name, Action: req.Action, Form: req.Form, Body: req.Body}, accessKeyID)
	var denied *iam.DeniedError
	if err := a.authorizeSpotRole(req, p, account, accessKeyID); err != nil {
		return err
	}
	if err := p.Authorize(demands); !errors.As(err, &denied) || denied.ByDefault() && a.named(req, p.ARN) {
		return nil
	}
	switch req.Protocol {
	case wire.InstanceConnect:
		return wire.RefuseWith(http.StatusForbidden, "AccessDeniedException", "%v", denied)
	case wire.SSM, wire.ServiceQuotas, wire.ECR:
		return wire.Refuse("AccessDeniedException", "%v", denied)
	case wire.STS, wire.IAM, wire.ELB, wire.ClassicELB:
		return wire.RefuseWith(http.StatusForbidden, "AccessDenied", "%v", denied)
	}
	if denied.Resource == "*" { // EC2 encodes no message where an action knows no resources
		return wire.RefuseWith(http.StatusForbidden, "UnauthorizedOperation", "You are not authorized to perform this operation. %v", denied)
	}
	return wire.RefuseWith(http.StatusForbidden, "UnauthorizedOperation",
		"You are not authorized to perform this operation. %v. Encoded authorization failure message: %s", denied, encodeDenied(denied))
}

// demands returns what a call needs, with the condition keys of credentials that an instance has been given.
func (a *Account) demands(account iam.Account, c iam.Call, accessKeyID string) []iam.Demand {
	demands, _ := account.Demands(c)
	for _, d := range demands {
		maps.Copy(d.Context, a.delivered(accessKeyID))
	}
	return demands
}

// may returns what EC2 asks about the resources on which an action has an effect beside its own.
func (a *Account) may(accessKeyID string) func(action, parameter string, on ec2.Resource) bool {
	return func(action, parameter string, on ec2.Resource) bool {
		p := a.principal(accessKeyID)
		if p.Unlimited() {
			return true
		}
		account := iam.Account{ID: a.cfg.AccountID, Region: a.cfg.Region, Resources: func(string, string) []iam.Resource { return []iam.Resource{iam.Resource(on)} }}
		call := iam.Call{Service: wire.EC2.Name, Action: action, Form: url.Values{parameter: {on.Name}}}
		return p.Authorize(a.demands(account, call, accessKeyID)) == nil
	}
}

// authorizeSpotRole refuses the account's first Spot instance to a caller who may not make EC2's service-linked
// role for them.
// https://docs.aws.amazon.com/AWSEC2/latest/UserGuide/service-linked-roles-spot-instance-requests.html
func (a *Account) authorizeSpotRole(req wire.Request, p iam.Principal, account iam.Account, accessKeyID string) error {
	d, ok := account.SpotRole(iam.Call{Service: req.Protocol.Name, Action: req.Action, Form: req.Form})
	if !ok || a.compute.SpotRole() {
		return nil
	}
	maps.Copy(d.Context, a.delivered(accessKeyID))
	if err := p.Authorize([]iam.Demand{d}); err != nil {
		return wire.RefuseWith(http.StatusForbidden, "AuthFailure.ServiceLinkedRoleCreationNotPermitted",
			"The provided credentials do not have permission to create the service-linked role for EC2 Spot Instances.")
	}
	return nil
}

// principal returns who an access key belongs to, with all policies that apply.
func (a *Account) principal(accessKeyID string) iam.Principal {
	c := a.tokens.Caller(accessKeyID)
	p := a.identities.PrincipalOf(c.User).With(c.Tags)
	p.ARN, p.Everything = c.ARN, c.Owner
	if c.ARN != c.User { // a federated user, who is nobody in IAM
		p.Context["aws:PrincipalArn"], p.Context["aws:PrincipalType"] = []string{c.ARN}, []string{"FederatedUser"}
		delete(p.Context, "aws:username")
	}
	if c.Source != "" {
		p.Context["aws:SourceIdentity"] = []string{c.Source}
	}
	if !c.Limited {
		return p
	}
	p.Session = []iam.Policy{}
	for _, document := range c.Policies {
		if policy, err := iam.Parse([]byte(document)); err == nil { // it was checked when it was given
			p.Session = append(p.Session, policy)
		}
	}
	return p
}

// named reports whether the request is for a session of a role whose trust policy names the caller,
// who needs no permission then.
func (a *Account) named(req wire.Request, arn string) bool {
	if req.Protocol != wire.STS || req.Action != "AssumeRole" {
		return false
	}
	_, named := a.identities.Trusts(req.Form.Get("RoleArn"), iam.Assumption{Action: "sts:AssumeRole", Caller: arn, Context: sts.Assuming(req.Form)})
	return named
}

// user, trusts and checkPolicy are what STS asks of IAM.
func (a *Account) user(accessKeyID string) (secret, arn string, ok bool) {
	u, ok := a.identities.UserOf(accessKeyID)
	return u.SecretAccessKey, u.ARN, ok
}

func (a *Account) trusts(role, action string, who sts.Assumption) bool {
	allowed, _ := a.identities.Trusts(role, iam.Assumption{Action: "sts:" + action, Caller: who.Caller, Context: who.Context})
	return allowed
}

// verify returns what the token of a web identity says, if a provider of the account has signed it.
func (a *Account) verify(token string) (webidentity.Token, error) {
	way := func(otherwise http.RoundTripper) http.RoundTripper { return ownS3{a, otherwise} }
	return webidentity.Verify(token, a.identities.IssuerOf, way, a.cfg.Clock.Now())
}

func checkPolicy(document string) error {
	_, err := iam.Parse([]byte(document))
	return err
}

// encodeDenied returns the message that sts:DecodeAuthorizationMessage decodes. On AWS it is
// encrypted. It has the condition keys of the request, and no statement of a policy.
// https://docs.aws.amazon.com/STS/latest/APIReference/API_DecodeAuthorizationMessage.html
func encodeDenied(d *iam.DeniedError) string {
	type list struct {
		Items []any `json:"items"`
	}
	conditions := list{[]any{}}
	for _, key := range slices.Sorted(maps.Keys(d.Context)) {
		values := list{[]any{}}
		for _, v := range d.Context[key] {
			values.Items = append(values.Items, map[string]string{"value": v})
		}
		conditions.Items = append(conditions.Items, map[string]any{"key": key, "values": values})
	}
	raw, _ := json.Marshal(map[string]any{ // texts only
		"allowed": false, "explicitDeny": d.Explicit, "matchedStatements": list{[]any{}}, "failures": list{[]any{}},
		"context": map[string]any{"principal": map[string]string{"arn": d.Principal}, "action": d.Action, "resource": d.Resource, "conditions": conditions},
	})
	return base64.RawURLEncoding.EncodeToString(raw)
}

// Identities returns the account's users and roles.
func (a *Account) Identities() *iam.Directory { return a.identities }

// resources returns the resources of EC2 that a request's parameter names.
func (a *Account) resources(parameter, value string) []iam.Resource {
	var out []iam.Resource
	for _, r := range a.compute.Resources(parameter, value) {
		out = append(out, iam.Resource(r))
	}
	return out
}
