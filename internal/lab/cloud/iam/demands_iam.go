package iam

import (
	"fmt"
	"maps"
	"slices"
	"strings"
)

// iamActions say what an action of IAM is on: the type of the resource in ARNs, and the parameter that names it.
// https://docs.aws.amazon.com/service-authorization/latest/reference/list_awsidentityandaccessmanagementiam.html
var iamActions = iamResources()

type iamResource struct{ kind, parameter string }

func iamResources() map[string]iamResource {
	out := map[string]iamResource{}
	on := func(kind, parameter string, actions ...string) {
		for _, a := range actions {
			out[a] = iamResource{kind, parameter}
		}
	}
	for name, kind := range map[string]string{"User": "user", "Role": "role"} {
		on(kind, name+"Name", "Create"+name, "Get"+name, "Delete"+name, "Tag"+name, "Untag"+name, "List"+name+"Tags", "Put"+name+"Policy", "Get"+name+"Policy", "Delete"+name+"Policy",
			"List"+name+"Policies", "Attach"+name+"Policy", "Detach"+name+"Policy", "ListAttached"+name+"Policies", "Put"+name+"PermissionsBoundary", "Delete"+name+"PermissionsBoundary")
		on(kind, "", "List"+name+"s")
	}
	on("user", "UserName", "CreateAccessKey", "ListAccessKeys", "UpdateAccessKey", "DeleteAccessKey")
	on("role", "RoleName", "UpdateAssumeRolePolicy", "ListInstanceProfilesForRole")
	on("policy", "PolicyArn", "GetPolicy", "GetPolicyVersion", "ListPolicyVersions", "DeletePolicy")
	on("policy", "PolicyName", "CreatePolicy")
	on("policy", "", "ListPolicies")
	on("instance-profile", "InstanceProfileName", "CreateInstanceProfile", "GetInstanceProfile", "DeleteInstanceProfile", "AddRoleToInstanceProfile", "RemoveRoleFromInstanceProfile")
	on("instance-profile", "", "ListInstanceProfiles")
	for _, action := range []string{"Get%s", "Delete%s", "Tag%s", "Untag%s", "List%sTags", "AddClientIDTo%s", "RemoveClientIDFrom%s", "Update%sThumbprint"} {
		on("oidc-provider", "OpenIDConnectProviderArn", fmt.Sprintf(action, "OpenIDConnectProvider"))
	}
	on("oidc-provider", "Url", "CreateOpenIDConnectProvider")
	on("oidc-provider", "", "ListOpenIDConnectProviders")
	return out
}

// iam: actions on users, roles, policies, instance profiles and OpenID Connect providers. An action on a user without a name
// is on the caller.
func (a Account) iam(c Call) ([]Demand, bool) {
	r, ok := iamActions[c.Action]
	if !ok {
		return nil, false
	}
	name := c.Form.Get(r.parameter)
	if name == "" && r.kind == "user" && r.parameter != "" {
		name = a.Caller
	}
	if r.kind == "oidc-provider" && r.parameter == "" {
		name = "*"
	}
	arn, e := a.Identities.resource(r.kind, name, c.Form.Get("Path"))
	context := map[string][]string{}
	for key, value := range e.Tags {
		context["aws:ResourceTag/"+key], context["iam:ResourceTag/"+key] = []string{value}, []string{value}
	}
	tags := map[string]string{}
	var keys []string
	for parameter := range c.Form {
		if item, ok := strings.CutSuffix(parameter, ".Key"); ok && strings.HasPrefix(item, "Tags.member.") {
			tags[c.Form.Get(parameter)] = c.Form.Get(item + ".Value")
		}
		if strings.HasPrefix(parameter, "TagKeys.member.") {
			keys = append(keys, c.Form.Get(parameter))
		}
	}
	maps.Copy(context, tagContext(tags))
	if len(keys) > 0 {
		slices.Sort(keys)
		context["aws:TagKeys"] = keys
	}
	// The boundary of a request counts, and otherwise the boundary that the user or role has.
	boundary := c.Form.Get("PermissionsBoundary")
	if boundary == "" && !strings.HasPrefix(c.Action, "Create") {
		boundary = e.Boundary
	}
	if boundary != "" {
		context["iam:PermissionsBoundary"] = []string{boundary}
	}
	if policy := c.Form.Get("PolicyArn"); policy != "" && r.kind != "policy" {
		context["iam:PolicyARN"] = []string{policy}
	}
	out := []Demand{{Action: "iam:" + c.Action, Resource: arn, Context: context}}
	if kind, made := strings.CutPrefix(c.Action, "Create"); made && len(tags) > 0 {
		out = append(out, Demand{Action: "iam:Tag" + kind, Resource: arn, Context: maps.Clone(context)})
	}
	if c.Action == "AddRoleToInstanceProfile" {
		role, _ := a.Identities.resource("role", c.Form.Get("RoleName"), "")
		out = append(out, Demand{Action: "iam:PassRole", Resource: role, Context: map[string][]string{"iam:PassedToService": {EC2(a.Region)}}})
	}
	return out, true
}

// resource returns the ARN of what an action is on, whether it exists or not, and the user or role.
func (d *Directory) resource(kind, name, path string) (arn string, e Entity) {
	d.mu.Lock()
	defer d.mu.Unlock()
	switch kind {
	case "user":
		if u, ok := d.saved.Users[name]; ok {
			return u.ARN, u.Entity
		}
	case "role":
		if r, ok := d.saved.Roles[name]; ok {
			return r.ARN, r.Entity
		}
	case "instance-profile":
		if p, ok := d.saved.Profiles[name]; ok {
			return p.ARN, e
		}
	case "oidc-provider":
		if !strings.HasPrefix(name, "arn:") {
			return d.arn(kind, "/", issuerName(name)), e
		}
		e.Tags = d.saved.Issuers[name].Tags
		return name, e
	case "policy":
		if strings.HasPrefix(name, "arn:") {
			return name, e
		}
	}
	if path == "" {
		path = "/"
	}
	return d.arn(kind, path, name), e
}
