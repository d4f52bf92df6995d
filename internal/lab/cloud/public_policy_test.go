package cloud

import (
	"strings"
	"testing"
)

func TestPublicPolicy(t *testing.T) {
	const (
		public = `{"Effect":"Allow","Principal":"*","Action":"s3:GetObject","Resource":"arn:aws:s3:::b/*"}`
		one    = `{"Effect":"Allow","Principal":{"AWS":"arn:aws:iam::999999999999:root"},"Action":"s3:GetObject","Resource":"arn:aws:s3:::b/*"}`
	)
	when := func(condition string) string {
		return strings.TrimSuffix(public, "}") + `,"Condition":` + condition + `}`
	}
	for _, tt := range []struct {
		statements string
		want       bool
	}{
		{public, true},
		{one, false},
		{one + "," + public, true},
		{strings.Replace(public, `"*"`, `{"AWS":"*"}`, 1), true},
		{strings.Replace(public, `"*"`, `{"AWS":["arn:aws:iam::999999999999:root","*"]}`, 1), true},
		{strings.Replace(public, `"*"`, `{"Service":"cloudtrail.amazonaws.com"}`, 1), false},
		{strings.Replace(public, `"Principal":"*"`, `"NotPrincipal":{"AWS":"999999999999"}`, 1), true},
		{strings.Replace(public, "Allow", "Deny", 1), false},
		{when(`{"Bool":{"aws:SecureTransport":"true"}}`), true},
		{when(`{"StringLike":{"aws:SourceVpc":"vpc-*"}}`), true},
		{when(`{"StringEquals":{"aws:SourceVpc":"vpc-91237329"}}`), false},
		{when(`{"StringEquals":{"AWS:SourceVpc":["vpc-91237329","vpc-9123732?"]}}`), true},
		{when(`{"StringNotEquals":{"aws:SourceVpce":"vpce-1"}}`), true},
		{when(`{"StringEqualsIfExists":{"aws:SourceVpce":"vpce-1"}}`), true},
		{when(`{"StringEquals":{"aws:PrincipalOrgID":"o-1"}}`), false},
		{when(`{"StringEquals":{"aws:userid":"${aws:userid}"}}`), true},
		{when(`{"StringLike":{"aws:userid":"AROAEXAMPLE:*"}}`), true},
		{when(`{"ArnLike":{"aws:SourceArn":"arn:aws:sns:us-east-1:999999999999:topic"}}`), false},
		{when(`{"ArnLike":{"s3:DataAccessPointArn":"arn:aws:s3:us-east-1:999999999999:accesspoint/*"}}`), false},
		{when(`{"ArnLike":{"s3:DataAccessPointArn":"arn:aws:s3:us-east-1:*:accesspoint/a"}}`), true},
		{when(`{"StringEquals":{"aws:Referer":"https://example.com"}}`), true},
		{when(`{"IpAddress":{"aws:SourceIp":["203.0.113.0/24","2001:db8::/32","10.0.0.0/8"]}}`), false},
		{when(`{"IpAddress":{"aws:SourceIp":"203.0.113.7"}}`), false},
		{when(`{"IpAddress":{"aws:SourceIp":["203.0.113.0/24","0.0.0.0/1"]}}`), true},
		{when(`{"IpAddress":{"aws:SourceIp":"2000::/3"}}`), true},
		{when(`{"NotIpAddress":{"aws:SourceIp":"203.0.113.0/24"}}`), true},
	} {
		if got := publicPolicy([]byte(`{"Statement":[` + tt.statements + `]}`)); got != tt.want {
			t.Errorf("%s: public: %v, want %v", tt.statements, got, tt.want)
		}
	}
	for document, want := range map[string]bool{"": false, "{": false, `{"Statement":` + public + `}`: true, `{"Statement":"x"}`: true} {
		if got := publicPolicy([]byte(document)); got != want {
			t.Errorf("%s: public: %v, want %v", document, got, want)
		}
	}
}
