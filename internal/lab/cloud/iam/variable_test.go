package iam

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"testing"
)

// TestVariables: variables in resources and conditions, and keys about the principal.
func TestVariables(t *testing.T) {
	const parameter = "arn:aws:ssm:us-east-1:123456789012:parameter/k8s/ada/ca"
	about := map[string][]string{
		"aws:PrincipalTag/Team": {"ada"}, "aws:username": {"ada"}, "aws:PrincipalTag/star": {"*"}, "aws:PrincipalTag/many": {"a", "b"},
		"aws:PrincipalArn": {"arn:aws:iam::123456789012:user/k8s/ada"},
	}
	allow := func(resource, condition string) string {
		return `{"Version":"2012-10-17","Statement":[{"Effect":"Allow","Action":"ssm:*","Resource":"` + resource + `","Condition":{` + condition + `}}]}`
	}
	const path = "arn:aws:ssm:*:*:parameter/k8s/"
	for _, tc := range []struct {
		name, policy string
		allowed      bool
	}{
		{"tag", allow(path+"${aws:PrincipalTag/team}/*", ""), true},
		{"name", allow(path+"${aws:username}/*", ""), true},
		{"no such tag", allow(path+"${aws:PrincipalTag/none}/*", ""), false},
		{"no such tag, with a default", allow(path+"${aws:PrincipalTag/none, 'ada'}/*", ""), true},
		{"several values", allow(path+"${aws:PrincipalTag/many}/*", ""), false},
		{"a value is no wildcard", allow(path+"${aws:PrincipalTag/star}/*", ""), false},
		{"a literal star", allow(path+"${*}", ""), false},
		{"an old version knows none", `{"Version":"2008-10-17","Statement":[{"Effect":"Allow","Action":"*","Resource":"` + path + `${aws:username}/*"}]}`, false},
		{"in a condition", allow("*", `"StringEquals":{"aws:ResourceTag/owner":"${aws:username}"}`), true},
		{"no value in a condition", allow("*", `"StringEquals":{"aws:ResourceTag/owner":"${aws:PrincipalTag/none}"}`), false},
		{"no value, negated", allow("*", `"StringNotEquals":{"aws:ResourceTag/owner":"${aws:PrincipalTag/none}"}`), true},
		{"ARN of the principal", allow("*", `"ArnLike":{"aws:PrincipalArn":"arn:aws:iam::*:user/k8s/*"}`), true},
		{"a star is within a part", allow("*", `"ArnLike":{"aws:PrincipalArn":"arn:aws:*:user/k8s/*"}`), false},
		{"not so for texts", allow("*", `"StringLike":{"aws:PrincipalArn":"arn:aws:*:user/k8s/*"}`), true},
		{"any of none, negated", allow("*", `"ForAnyValue:StringNotEquals":{"aws:TagKeys":"x"}`), false},
		{"all of none", allow("*", `"ForAllValues:StringEquals":{"aws:TagKeys":"x"}`), true},
	} {
		p, err := Parse([]byte(tc.policy))
		if err != nil {
			t.Fatal(tc.name, err)
		}
		err = Principal{Policies: []Policy{p}, Context: about}.Authorize([]Demand{{"ssm:GetParameter", parameter, map[string][]string{"aws:ResourceTag/owner": {"ada"}}}})
		if (err == nil) != tc.allowed {
			t.Errorf("%s: %v", tc.name, err)
		}
	}
}

// TestLimits: who takes away, and AWS's words for it.
func TestLimits(t *testing.T) {
	all, none := policy(t, `{"Effect":"Allow","Action":"*","Resource":"*"}`), policy(t, `{"Effect":"Allow","Action":"s3:*","Resource":"*"}`)
	deny := policy(t, `{"Effect":"Allow","Action":"*","Resource":"*"},{"Effect":"Deny","Action":"ec2:*","Resource":"*"}`)
	const user, role = "arn:aws:iam::123456789012:user/u", "arn:aws:sts::123456789012:assumed-role/r/s"
	for _, tc := range []struct {
		p         Principal
		why       string
		byDefault bool
	}{
		{Principal{Policies: []Policy{all}, Boundary: &all, Session: []Policy{all}, Controls: []Policy{all}}, "", false},
		{Principal{Policies: []Policy{none}}, "because no identity-based policy allows the ec2:DeleteVpc action", true},
		{Principal{Policies: []Policy{all, deny}}, "with an explicit deny in an identity-based policy", false},
		{Principal{Policies: []Policy{all}, Boundary: &none}, "because no permissions boundary allows the ec2:DeleteVpc action", true},
		{Principal{Policies: []Policy{all}, Boundary: &deny}, "with an explicit deny in a permissions boundary", false},
		{Principal{Policies: []Policy{all}, Session: []Policy{}}, "because no session policy allows the ec2:DeleteVpc action", false},
		{Principal{Policies: []Policy{all}, Session: []Policy{deny}}, "with an explicit deny in a session policy", false},
		{Principal{Policies: []Policy{all}, Session: []Policy{none, all}}, "", false},
		{Principal{Everything: true, Controls: []Policy{none}}, "because no service control policy allows the ec2:DeleteVpc action", false},
		{Principal{Everything: true, Controls: []Policy{deny}}, "with an explicit deny in a service control policy", false},
		{Principal{Policies: []Policy{none}, Boundary: &deny}, "with an explicit deny in a permissions boundary", false},
		{Principal{Policies: []Policy{none}, Session: []Policy{none}}, "because no identity-based policy allows the ec2:DeleteVpc action", false},
	} {
		tc.p.ARN = user
		err := tc.p.Authorize([]Demand{{Action: "ec2:DeleteVpc", Resource: "*"}})
		if tc.why == "" {
			if err != nil {
				t.Error(err)
			}
			continue
		}
		var denied *DeniedError
		if want := "User: " + user + " is not authorized to perform: ec2:DeleteVpc " + tc.why; !errors.As(err, &denied) || err.Error() != want || denied.ByDefault() != tc.byDefault {
			t.Errorf("%v, by default %t; want %s", err, !tc.byDefault, want)
		}
	}
	p := Principal{ARN: role, Policies: []Policy{all}, Boundary: &none}
	var denied *DeniedError
	if err := p.Authorize([]Demand{{Action: "ec2:DeleteVpc", Resource: "*"}}); !errors.As(err, &denied) || denied.ByDefault() {
		t.Error("a resource policy that names a role goes around the role's boundary")
	}
}

// TestTeacher: a teacher makes and changes only what has the boundary and is below the path. Each statement of
// teacher.json is needed for something.
func TestTeacher(t *testing.T) {
	raw, err := os.ReadFile(filepath.Join("..", "..", "..", "..", "examples", "iam", "teacher.json"))
	if err != nil {
		t.Fatal(err)
	}
	whole, err := Parse(raw)
	if err != nil {
		t.Fatal(err)
	}
	const account = "arn:aws:iam::123456789012:"
	bound := map[string][]string{"iam:PermissionsBoundary": {account + "policy/k8s-boundary"}}
	tag := map[string][]string{"aws:ResourceTag/k8s-from-scratch/cluster": {"bob"}}
	type call struct {
		action, resource string
		context          map[string][]string
		allowed          bool
	}
	calls := []call{
		{"iam:CreateUser", account + "user/k8s/ada", bound, true},
		{"iam:CreateUser", account + "user/k8s/ada", nil, false},
		{"iam:CreateUser", account + "user/ada", bound, false},
		{"iam:CreateRole", account + "role/k8s/ada/node", bound, true},
		{"iam:CreateRole", account + "role/k8s/ada/node", map[string][]string{"iam:PermissionsBoundary": {account + "policy/mine"}}, false},
		{"iam:DeleteUserPermissionsBoundary", account + "user/k8s/ada", bound, false},
		{"iam:CreatePolicyVersion", account + "policy/k8s-boundary", nil, false},
		{"iam:AttachUserPolicy", account + "user/k8s/ada", bound, true},
		{"iam:AttachUserPolicy", account + "user/k8s/ada", nil, false},
		{"iam:AttachUserPolicy", account + "user/teacher", bound, false},
		{"iam:CreateAccessKey", account + "user/k8s/ada", nil, true},
		{"iam:CreateAccessKey", account + "user/admin", nil, false},
		{"iam:PassRole", account + "role/k8s/ada/node", map[string][]string{"iam:PassedToService": {EC2("us-east-1")}}, true},
		{"iam:PassRole", account + "role/admin", map[string][]string{"iam:PassedToService": {EC2("us-east-1")}}, false},
		{"iam:ListUsers", "*", nil, true},
		{"servicequotas:RequestServiceQuotaIncrease", "*", nil, true},
		{"iam:CreateServiceLinkedRole", account + "role/aws-service-role/spot.amazonaws.com/AWSServiceRoleForEC2Spot", map[string][]string{"iam:AWSServiceName": {"spot.amazonaws.com"}}, true},
		{"ec2:TerminateInstances", "arn:aws:ec2:us-east-1:123456789012:instance/i-1", tag, true},
		{"ec2:TerminateInstances", "arn:aws:ec2:us-east-1:123456789012:instance/i-1", nil, false},
		{"ec2:RevokeSecurityGroupIngress", "arn:aws:ec2:us-east-1:123456789012:security-group/sg-1", tag, true},
		{"ec2:DeleteTags", "arn:aws:ec2:us-east-1:123456789012:instance/i-1", tag, false},
		{"ssm:DeleteParameters", "arn:aws:ssm:us-east-1:123456789012:parameter/k8s/bob/ca", nil, true},
		{"ssm:GetParameter", "arn:aws:ssm:us-east-1:123456789012:parameter/k8s/bob/ca", nil, false},
	}
	results := func(p Policy) (out []bool) {
		for _, c := range calls {
			out = append(out, Principal{Policies: []Policy{p}}.Authorize([]Demand{{c.action, c.resource, c.context}}) == nil)
		}
		return out
	}
	for n, allowed := range results(whole) {
		if allowed != calls[n].allowed {
			t.Errorf("%s on %s: allowed %t", calls[n].action, calls[n].resource, allowed)
		}
	}
	for n, s := range whole.Statements {
		if slices.Equal(results(Policy{slices.Delete(slices.Clone(whole.Statements), n, n+1)}), results(whole)) {
			t.Errorf("nothing notices that %s is missing", s.ID)
		}
	}
}
