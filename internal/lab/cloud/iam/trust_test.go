package iam

import (
	"strings"
	"testing"
)

func TestTrust(t *testing.T) {
	const (
		user     = "arn:aws:iam::123456789012:user/dev"
		session  = "arn:aws:sts::123456789012:assumed-role/ci/run-1"
		provider = "arn:aws:iam::123456789012:oidc-provider/app.terraform.io"
	)
	statement := func(effect, principal, action, condition string) string {
		return `{"Effect":"` + effect + `","Principal":` + principal + `,"Action":"` + action + `","Condition":{` + condition + `}}`
	}
	allow := func(principal, condition string) string {
		return statement("Allow", principal, "sts:AssumeRole", condition)
	}
	web := func(condition string) string {
		return statement("Allow", `{"Federated":"`+provider+`"}`, "sts:AssumeRoleWithWebIdentity", condition)
	}
	for _, tc := range []struct {
		name, policy, caller string
		allowed, named       bool
	}{
		{"the account's root", allow(`{"AWS":"arn:aws:iam::123456789012:root"}`, ""), user, true, false},
		{"the account", allow(`{"AWS":["123456789012"]}`, ""), session, true, false},
		{"another account", allow(`{"AWS":"210987654321"}`, ""), user, false, false},
		{"anybody", allow(`"*"`, ""), user, true, false},
		{"the user", allow(`{"AWS":"`+user+`"}`, ""), user, true, true},
		{"another user", allow(`{"AWS":"`+user+`2"}`, ""), user, false, false},
		{"the session's role", allow(`{"AWS":"arn:aws:iam::123456789012:role/ci"}`, ""), session, true, true},
		{"the session", allow(`{"AWS":"`+session+`"}`, ""), session, true, true},
		{"a service", allow(`{"Service":"ec2.amazonaws.com"}`, ""), user, false, false},
		{"EC2", allow(`{"Service":["ec2.amazonaws.com"]}`, ""), EC2("us-east-1"), true, true},
		{"EC2, but another service is trusted", allow(`{"Service":"lambda.amazonaws.com"}`, ""), EC2("us-east-1"), false, false},
		{"EC2, but only the account is trusted", allow(`{"AWS":"123456789012"}`, ""), EC2("us-east-1"), false, false},
		{"EC2, but anybody is trusted", allow(`"*"`, ""), EC2("us-east-1"), false, false},
		{"the external id", allow(`{"AWS":"`+user+`"}`, `"StringEquals":{"sts:ExternalId":"x-1"}`), user, true, true},
		{"another external id", allow(`{"AWS":"`+user+`"}`, `"StringEquals":{"sts:ExternalId":"x-2"}`), user, false, false},
		{"denied", allow(`"*"`, "") + "," + statement("Deny", `{"AWS":"`+user+`"}`, "sts:*", ""), user, false, false},
		{"web identity", web(""), provider, true, true},
		{"web identity of the workspace", web(`"StringLike":{"app.terraform.io:sub":"organization:acme:*"}`), provider, true, true},
		{"web identity of another", web(`"StringLike":{"app.terraform.io:sub":"organization:other:*"}`), provider, false, false},
		{"web identity, but only the account is trusted", allow(`{"AWS":"123456789012"}`, ""), provider, false, false},
	} {
		t.Run(tc.name, func(t *testing.T) {
			trust, err := ParseTrust([]byte(`{"Version":"2012-10-17","Statement":[` + tc.policy + `]}`))
			if err != nil {
				t.Fatal(err)
			}
			a := Assumption{Action: "sts:AssumeRole", Caller: tc.caller, Context: map[string][]string{"sts:ExternalId": {"x-1"}, "app.terraform.io:sub": {"organization:acme:project:a"}}}
			if tc.caller == session {
				a.Role = "arn:aws:iam::123456789012:role/ci"
			}
			if tc.caller == provider {
				a.Action = "sts:AssumeRoleWithWebIdentity"
			}
			if allowed, named := trust.Allows(a); allowed != tc.allowed || named != tc.named {
				t.Errorf("allowed %t, named %t", allowed, named)
			}
		})
	}
	if _, err := ParseTrust([]byte(DefaultTrust("us-east-1", "123456789012"))); err != nil {
		t.Error(err)
	}
	for policy, want := range map[string]string{
		statement("Maybe", `"*"`, "sts:AssumeRole", ""):                               "effect",
		`{"Effect":"Allow","Action":"sts:AssumeRole"}`:                                "needs Principal",
		`{"Effect":"Allow","Principal":"*"}`:                                          "needs Action",
		statement("Allow", `"*"`, "ec2:RunInstances", ""):                             "not an action of STS",
		statement("Allow", `{"AWS":"arn:aws:iam::1:user/*"}`, "sts:AssumeRole", ""):   "wildcard",
		statement("Allow", `{"Canonical":"x"}`, "sts:AssumeRole", ""):                 "principal",
		`{"Effect":"Allow","Principal":"*","Action":"sts:AssumeRole","Resource":"*"}`: "Resource",
	} {
		if _, err := ParseTrust([]byte(`{"Version":"2012-10-17","Statement":` + policy + `}`)); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %q", policy, err, want)
		}
	}
}
