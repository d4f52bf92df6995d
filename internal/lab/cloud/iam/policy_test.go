package iam

import (
	"strings"
	"testing"
)

func TestParse(t *testing.T) {
	for _, tc := range []struct{ policy, want string }{
		{`{"Version":"2012-10-17","Statement":{"Effect":"Allow","Action":"ec2:*","Resource":"*"}}`, ""},
		{`{"Version":"2012-10-17","Statement":[{"Sid":"a","Effect":"Deny","NotAction":["ec2:*"],"NotResource":"arn:aws:s3:::b","Condition":{"Bool":{"aws:SecureTransport":false}}}]}`, ""},
		{`{"Version":"2012-10-17"}`, "no statement"},
		{`{"Version":"2013-01-01","Statement":[]}`, "version"},
		{`{"Version":"2012-10-17","Statement":[{"Effect":"Maybe","Action":"ec2:*","Resource":"*"}]}`, "effect"},
		{`{"Version":"2012-10-17","Statement":[{"Effect":"Allow","Resource":"*"}]}`, "either Action or NotAction"},
		{`{"Version":"2012-10-17","Statement":[{"Effect":"Allow","Action":"ec2:*"}]}`, "either Resource or NotResource"},
		{`{"Version":"2012-10-17","Statement":[{"Effect":"Allow","Action":"RunInstances","Resource":"*"}]}`, "not an action"},
		{`{"Version":"2012-10-17","Statement":[{"Effect":"Allow","Action":"ec2:*","Resource":"vpc-1"}]}`, "not the ARN"},
		{`{"Version":"2012-10-17","Statement":[{"Effect":"Allow","Action":"ec2:*","Resource":"*","Condition":{"StringAlike":{"a":"b"}}}]}`, "StringAlike"},
		{`{"Version":"2012-10-17","Statement":[{"Effect":"Allow","Action":"ec2:*","Resource":"*","Principal":"*"}]}`, "Principal"},
		{`[]`, "not valid"},
		{`{"Version":"2012-10-17","Statement":{"Effect":"Allow","Action":"ec2:*","Resource":"*"}} {}`, "something follows"},
		{`{"Version":"2012-10-17","Statement":{"Sid":"My statement","Effect":"Allow","Action":"ec2:*","Resource":"*"}}`, "Sid"},
		{`{"Version":"2012-10-17","Statement":[{"Sid":"A","Effect":"Allow","Action":"ec2:*","Resource":"*"},{"Sid":"A","Effect":"Deny","Action":"ec2:*","Resource":"*"}]}`, "not unique"},
	} {
		_, err := Parse([]byte(tc.policy))
		if tc.want == "" && err != nil || tc.want != "" && (err == nil || !strings.Contains(err.Error(), tc.want)) {
			t.Errorf("%s: %v, want %q", tc.policy, err, tc.want)
		}
	}
}

// TestCheckSize: IAM counts characters, and no white space.
func TestCheckSize(t *testing.T) {
	for _, tc := range []struct {
		documents []string
		ok        bool
	}{
		{[]string{"äbc", " d\n\te "}, true},
		{[]string{"abc", "def"}, false},
		{[]string{"abcdef"}, false},
	} {
		if err := CheckSize(5, "user ada", tc.documents...); (err == nil) != tc.ok {
			t.Errorf("%q: %v", tc.documents, err)
		}
	}
}

func policy(t *testing.T, statements ...string) Policy {
	t.Helper()
	p, err := Parse([]byte(`{"Version":"2012-10-17","Statement":[` + strings.Join(statements, ",") + `]}`))
	if err != nil {
		t.Fatal(err)
	}
	return p
}

func TestAuthorize(t *testing.T) {
	const vpc = "arn:aws:ec2:us-east-1:123456789012:vpc/vpc-1"
	tagged := map[string][]string{"aws:ResourceTag/team/cluster": {"demo"}, "aws:TagKeys": {"Name", "team/cluster"}, "ec2:VolumeSize": {"20"}, "aws:RequestTag/Key": {"a"}, "aws:RequestTag/key": {"b"}}
	allow := func(action, resource, condition string) string {
		return `{"Effect":"Allow","Action":"` + action + `","Resource":"` + resource + `","Condition":{` + condition + `}}`
	}
	for _, tc := range []struct {
		name, statement string
		allowed         bool
	}{
		{"by name", allow("ec2:DeleteVpc", vpc, ""), true},
		{"in another case", allow("EC2:deletevpc", vpc, ""), true},
		{"by wildcard", allow("ec2:Delete*", "arn:aws:ec2:*:*:vpc/*", ""), true},
		{"by ?", allow("ec2:DeleteVp?", "*", ""), true},
		{"another action", allow("ec2:DeleteSubnet", "*", ""), false},
		{"another resource", allow("ec2:DeleteVpc", "arn:aws:ec2:*:*:vpc/vpc-2", ""), false},
		{"not this action", `{"Effect":"Allow","NotAction":"ec2:DeleteVpc","Resource":"*"}`, false},
		{"not another action", `{"Effect":"Allow","NotAction":"ec2:DeleteSubnet","Resource":"*"}`, true},
		{"not this resource", `{"Effect":"Allow","Action":"*","NotResource":"` + vpc + `"}`, false},
		{"tag", allow("ec2:*", "*", `"StringEquals":{"AWS:resourcetag/team/cluster":["x","demo"]}`), true},
		{"tag in another case", allow("ec2:*", "*", `"StringEquals":{"aws:ResourceTag/Team/cluster":"demo"}`), true},
		{"tag like", allow("ec2:*", "*", `"StringLike":{"aws:ResourceTag/team/cluster":"d*"}`), true},
		{"other tag", allow("ec2:*", "*", `"StringEquals":{"aws:ResourceTag/team/cluster":"prod"}`), false},
		{"not that tag", allow("ec2:*", "*", `"StringNotEquals":{"aws:ResourceTag/team/cluster":["prod","demo"]}`), false},
		{"missing key", allow("ec2:*", "*", `"StringLike":{"aws:ResourceTag/owner":"*"}`), false},
		{"missing key, negated", allow("ec2:*", "*", `"StringNotLike":{"aws:ResourceTag/owner":"a"}`), true},
		{"missing key, if it exists", allow("ec2:*", "*", `"StringLikeIfExists":{"aws:ResourceTag/owner":"a"}`), true},
		{"key is missing", allow("ec2:*", "*", `"Null":{"aws:ResourceTag/owner":true}`), true},
		{"key is not missing", allow("ec2:*", "*", `"Null":{"aws:ResourceTag/team/cluster":"false"}`), true},
		{"all values", allow("ec2:*", "*", `"ForAllValues:StringLike":{"aws:TagKeys":["Name","team/*"]}`), true},
		{"not all values", allow("ec2:*", "*", `"ForAllValues:StringLike":{"aws:TagKeys":["Name"]}`), false},
		{"any value", allow("ec2:*", "*", `"ForAnyValue:StringEquals":{"aws:TagKeys":["Name"]}`), true},
		{"number", allow("ec2:*", "*", `"NumericLessThanEquals":{"ec2:VolumeSize":20}`), true},
		{"larger number", allow("ec2:*", "*", `"NumericLessThan":{"ec2:VolumeSize":"20"}`), false},
		{"two conditions", allow("ec2:*", "*", `"NumericEquals":{"ec2:VolumeSize":20},"StringEquals":{"aws:ResourceTag/team/cluster":"prod"}`), false},
		{"one of two spellings", allow("ec2:*", "*", `"StringEquals":{"aws:RequestTag/key":"a"}`), false},
		{"the other spelling", allow("ec2:*", "*", `"StringEquals":{"aws:RequestTag/key":"b"}`), false},
		{"both spellings", allow("ec2:*", "*", `"StringEquals":{"aws:RequestTag/key":["a","b"]}`), true},
		{"one of two spellings is denied", allow("ec2:*", "*", "") + `,{"Effect":"Deny","Action":"*","Resource":"*","Condition":{"StringEquals":{"aws:RequestTag/key":"a"}}}`, false},
		{"the other spelling is denied", allow("ec2:*", "*", "") + `,{"Effect":"Deny","Action":"*","Resource":"*","Condition":{"StringNotEquals":{"aws:RequestTag/key":"a"}}}`, false},
		{"neither spelling is denied", allow("ec2:*", "*", "") + `,{"Effect":"Deny","Action":"*","Resource":"*","Condition":{"StringEquals":{"aws:RequestTag/key":"c"}}}`, true},
		{"denied", allow("ec2:*", "*", "") + `,{"Effect":"Deny","Action":"ec2:DeleteVpc","Resource":"*"}`, false},
	} {
		t.Run(tc.name, func(t *testing.T) {
			p := Principal{ARN: "arn:aws:iam::123456789012:user/u", Policies: []Policy{policy(t, tc.statement)}}
			err := p.Authorize([]Demand{{"ec2:DeleteVpc", vpc, tagged}})
			if (err == nil) != tc.allowed {
				t.Error(err)
			}
		})
	}
}

func TestSession(t *testing.T) {
	all, vpcs := policy(t, `{"Effect":"Allow","Action":"*","Resource":"*"}`), policy(t, `{"Effect":"Allow","Action":"ec2:*","Resource":"*"}`)
	delete := []Demand{{Action: "ec2:DeleteVpc", Resource: "*"}}
	put := []Demand{{Action: "ssm:PutParameter", Resource: "*"}}
	if err := (Principal{Policies: []Policy{all}, Session: []Policy{vpcs}}).Authorize(delete); err != nil {
		t.Error(err)
	}
	err := (Principal{ARN: "me", Policies: []Policy{all}, Session: []Policy{vpcs}}).Authorize(put)
	if want := "User: me is not authorized to perform: ssm:PutParameter because no session policy allows the ssm:PutParameter action"; err == nil || err.Error() != want {
		t.Error(err)
	}
	if err := (Principal{Policies: []Policy{vpcs}, Session: []Policy{all}}).Authorize(put); err == nil {
		t.Error("a session's policy added a permission")
	}
	if err := (Principal{Everything: true}).Authorize(put); err != nil {
		t.Error(err)
	}
	if err := (Principal{Everything: true, Session: []Policy{vpcs}}).Authorize(put); err == nil {
		t.Error("a session's policy took nothing away")
	}
}
