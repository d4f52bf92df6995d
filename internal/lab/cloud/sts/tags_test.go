package sts_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	awsec2 "github.com/aws/aws-sdk-go-v2/service/ec2"
	awssts "github.com/aws/aws-sdk-go-v2/service/sts"
	"github.com/aws/aws-sdk-go-v2/service/sts/types"

	"github.com/k8s-from-scratch/terraform-provider-k8s/internal/lab/cloud/cloudtest"
	"github.com/k8s-from-scratch/terraform-provider-k8s/internal/lab/cloud/iam"
)

// TestSessionTags: a session's tags are its principal tags, if the role's trust policy and the caller's policies allow
// them, and a session made with it keeps those that are transitive.
func TestSessionTags(t *testing.T) {
	l, ctx := cloudtest.New(t), t.Context()
	const look = `{"Version":"2012-10-17","Statement":[{"Effect":"Allow","Action":["ec2:DescribeVpcs","sts:*"],"Resource":"*","Condition":{"StringEquals":{"aws:PrincipalTag/k8s-cluster":"ada"}}}]}`
	const root = `{"Version":"2012-10-17","Statement":[{"Effect":"Allow","Principal":{"AWS":"123456789012","Federated":"arn:aws:iam::123456789012:oidc-provider/ci.example.com"},"Action":%s}]}`
	role := func(name, actions string, tags map[string]string) string {
		r := cloudtest.Must[iam.Role](t)(l.Account.Identities().PutRole(name, iam.Entity{Path: "/k8s/", Policies: []string{look}, Tags: tags}, fmt.Sprintf(root, actions)))
		return r.ARN
	}
	const all = `["sts:AssumeRole","sts:AssumeRoleWithWebIdentity","sts:TagSession","sts:SetSourceIdentity"]`
	arn := role("tagged", all, map[string]string{"k8s-cluster": "bob"})
	tag := func(value string) []types.Tag {
		return []types.Tag{{Key: aws.String("K8S-cluster"), Value: &value}}
	}
	assume := func(as *cloudtest.Lab, arn string, tags []types.Tag, transitive ...string) (*cloudtest.Lab, error) {
		out, err := as.STS.AssumeRole(ctx, &awssts.AssumeRoleInput{RoleArn: &arn, RoleSessionName: aws.String("test"), Tags: tags, TransitiveTagKeys: transitive})
		if err != nil {
			return nil, err
		}
		return l.With(*out.Credentials.AccessKeyId, *out.Credentials.SecretAccessKey, *out.Credentials.SessionToken), nil
	}
	may := func(as *cloudtest.Lab, want string) {
		t.Helper()
		_, err := as.DescribeVpcs(ctx, &awsec2.DescribeVpcsInput{})
		cloudtest.Refused(t, err, want)
	}
	may(cloudtest.Must[*cloudtest.Lab](t)(assume(l, arn, nil)), "UnauthorizedOperation") // the role is Bob's
	may(cloudtest.Must[*cloudtest.Lab](t)(assume(l, arn, tag("ada"))), "")
	first := cloudtest.Must[*cloudtest.Lab](t)(assume(l, arn, tag("ada"), "K8S-cluster"))
	plain := role("plain", all, nil)
	may(cloudtest.Must[*cloudtest.Lab](t)(assume(first, plain, nil)), "")
	_, err := assume(first, plain, tag("bob"))
	cloudtest.Refused(t, err, "InvalidParameterValue")
	_, err = assume(l, role("untaggable", `"sts:AssumeRole"`, nil), tag("ada"))
	cloudtest.Refused(t, err, "AccessDenied")
	_, err = assume(l, "arn:aws:iam::123456789012:role/plain", nil)
	cloudtest.Refused(t, err, "AccessDenied") // its path is another
	dev := l.User(t, `{"Effect":"Allow","Action":"sts:AssumeRole","Resource":"*"}`)
	_, err = assume(dev, arn, tag("ada"))
	cloudtest.Refused(t, err, "AccessDenied") // sts:TagSession

	issuer := cloudtest.NewIssuer(t)
	cloudtest.Must[iam.Issuer](t)(l.Account.Identities().PutIssuer(iam.Issuer{URL: "https://ci.example.com", ClientIDs: []string{"aws"}, Keys: issuer.Keys}))
	token := issuer.Sign(t, map[string]any{
		"iss": "https://ci.example.com", "sub": "run", "aud": "aws", "exp": l.Clock.Now().Add(time.Hour).Unix(),
		"https://aws.amazon.com/tags": map[string]any{"principal_tags": map[string]any{"k8s-cluster": []string{"ada"}}},
	})
	out := cloudtest.Must[*awssts.AssumeRoleWithWebIdentityOutput](t)(l.STS.AssumeRoleWithWebIdentity(ctx, &awssts.AssumeRoleWithWebIdentityInput{
		RoleArn: &arn, RoleSessionName: aws.String("ci"), WebIdentityToken: &token,
	}))
	may(l.With(*out.Credentials.AccessKeyId, *out.Credentials.SecretAccessKey, *out.Credentials.SessionToken), "")
}

// TestFederationToken: a federated user may do what the user's policies and those of the session allow.
func TestFederationToken(t *testing.T) {
	l, ctx := cloudtest.New(t), t.Context()
	dev := l.User(t, `{"Effect":"Allow","Action":["ec2:Describe*","sts:*"],"Resource":"*"}`)
	managed := cloudtest.Must[iam.Managed](t)(l.Account.Identities().PutPolicy("look", "", cloudtest.LookOnly))
	for want, change := range map[string]func(*awssts.GetFederationTokenInput){
		"": func(in *awssts.GetFederationTokenInput) {
			in.PolicyArns = []types.PolicyDescriptorType{{Arn: &managed.ARN}}
		},
		"UnauthorizedOperation": func(*awssts.GetFederationTokenInput) {}, // without a policy of its own it may do nothing
	} {
		in := &awssts.GetFederationTokenInput{Name: aws.String("guest")}
		change(in)
		out := cloudtest.Must[*awssts.GetFederationTokenOutput](t)(dev.STS.GetFederationToken(ctx, in))
		guest := l.With(*out.Credentials.AccessKeyId, *out.Credentials.SecretAccessKey, *out.Credentials.SessionToken)
		_, err := guest.DescribeVpcs(ctx, &awsec2.DescribeVpcsInput{})
		cloudtest.Refused(t, err, want)
		_, err = guest.CreateVpc(ctx, &awsec2.CreateVpcInput{CidrBlock: aws.String("10.9.0.0/16")})
		cloudtest.Refused(t, err, "UnauthorizedOperation")
		who := cloudtest.Must[*awssts.GetCallerIdentityOutput](t)(guest.STS.GetCallerIdentity(ctx, &awssts.GetCallerIdentityInput{}))
		if *who.Arn != "arn:aws:sts::123456789012:federated-user/guest" {
			t.Error(*who.Arn)
		}
	}
}
