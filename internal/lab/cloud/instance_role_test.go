package cloud_test

import (
	"net/http/httptest"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	awsec2 "github.com/aws/aws-sdk-go-v2/service/ec2"
	"github.com/aws/aws-sdk-go-v2/service/ec2/types"
	awssts "github.com/aws/aws-sdk-go-v2/service/sts"

	"github.com/k8s-from-scratch/terraform-provider-k8s/internal/lab/cloud/cloudtest"
	"github.com/k8s-from-scratch/terraform-provider-k8s/internal/lab/cloud/iam"
	"github.com/k8s-from-scratch/terraform-provider-k8s/internal/lab/metadata"
)

// inside is an instance as its metadata service sees it.
func inside(t *testing.T, l *cloudtest.Lab, s cloudtest.Site, id string) metadata.Instance {
	t.Helper()
	i, ok := l.Account.Instances().InstanceByAddress(s.VPC, netip.MustParseAddr(*l.Instance(t, id).PrivateIpAddress))
	if !ok {
		t.Fatal("the metadata service does not know it")
	}
	return i
}

// as returns the lab as it is seen with the credentials that the metadata service gives an instance,
// through the endpoint for instances.
func as(t *testing.T, l *cloudtest.Lab, r metadata.Role) *cloudtest.Lab {
	t.Helper()
	server := httptest.NewServer(l.Account.API())
	t.Cleanup(server.Close)
	other := l.With(r.AccessKeyID, r.SecretAccessKey, r.Token)
	cfg := other.AWS.Copy()
	cfg.BaseEndpoint = &server.URL
	return (&cloudtest.Lab{AWS: cfg, Clock: l.Clock, URL: server.URL}).With(r.AccessKeyID, r.SecretAccessKey, r.Token)
}

// TestInstanceRole: an instance's credentials are its own, have its role's rights, and are replaced
// long before they expire.
func TestInstanceRole(t *testing.T) {
	l := cloudtest.New(t)
	ctx := t.Context()
	s := l.NewSite(t)
	l.Profile(t, "node", `{"Version":"2012-10-17","Statement":[
		{"Effect":"Allow","Action":"ec2:DescribeInstances","Resource":"*","Condition":{"StringLike":{"ec2:SourceInstanceARN":"arn:aws:ec2:us-east-1:123456789012:instance/i-*"}}}]}`)
	in := s.RunInput()
	in.IamInstanceProfile = cloudtest.ProfileNamed("node")
	in.MinCount, in.MaxCount = aws.Int32(2), aws.Int32(2)
	out := cloudtest.Must[*awsec2.RunInstancesOutput](t)(l.RunInstances(ctx, in))
	var ids []string
	for _, i := range out.Instances {
		ids = append(ids, *i.InstanceId)
		l.Await(t, *i.InstanceId, types.InstanceStateNameRunning)
	}
	source := l.Account.Instances()
	roleOf := func(id string) metadata.Role {
		t.Helper()
		return cloudtest.Must[metadata.Role](t)(source.Role(inside(t, l, s, id)))
	}
	first, second := roleOf(ids[0]), roleOf(ids[1])
	if first.Name != "node" || !first.Trusted || first.AccessKeyID == "" || first.AccessKeyID == second.AccessKeyID || first.Token == second.Token {
		t.Errorf("credentials %+v and %+v", first, second)
	}
	if again := roleOf(ids[0]); again != first {
		t.Error("they change with every look")
	}

	api := as(t, l, first)
	me := cloudtest.Must[*awssts.GetCallerIdentityOutput](t)(api.STS.GetCallerIdentity(ctx, &awssts.GetCallerIdentityInput{}))
	if want := "arn:aws:sts::123456789012:assumed-role/node/" + ids[0]; *me.Arn != want {
		t.Errorf("it is %s, want %s", *me.Arn, want)
	}
	cloudtest.Must[*awsec2.DescribeInstancesOutput](t)(api.DescribeInstances(ctx, &awsec2.DescribeInstancesInput{}))
	_, err := api.TerminateInstances(ctx, &awsec2.TerminateInstancesInput{InstanceIds: ids})
	cloudtest.Refused(t, err, "UnauthorizedOperation")
	if !strings.Contains(err.Error(), "User: "+*me.Arn+" is not authorized to perform: ec2:TerminateInstances") {
		t.Error(err)
	}

	l.Clock.Advance(2 * time.Hour)
	rotated := roleOf(ids[0])
	if rotated.AccessKeyID == first.AccessKeyID || !rotated.Expires.After(first.Expires) {
		t.Errorf("not replaced: %+v", rotated)
	}
	cloudtest.Must[*awsec2.DescribeInstancesOutput](t)(api.DescribeInstances(ctx, &awsec2.DescribeInstancesInput{})) // the old ones last
	l.Clock.Advance(4*time.Hour + time.Minute)
	_, err = api.DescribeInstances(ctx, &awsec2.DescribeInstancesInput{})
	cloudtest.Refused(t, err, "RequestExpired")

	if _, err := l.Account.Identities().PutRole("node", iam.Entity{}, strings.Replace(iam.DefaultTrust("us-east-1", "123456789012"), "ec2.", "lambda.", 1)); err != nil {
		t.Fatal(err)
	}
	if r := roleOf(ids[0]); r.Name != "node" || r.Trusted || r.AccessKeyID != "" {
		t.Errorf("of a role that does not trust EC2: %+v", r)
	}
	if _, err := l.Account.Identities().DeleteProfile("node"); err != nil {
		t.Fatal(err)
	}
	if r := roleOf(ids[0]); r.Name != "" {
		t.Errorf("of a profile that is gone: %+v", r)
	}
	l.Profile(t, "node", cloudtest.LookOnly)
	if r := roleOf(ids[0]); r.Name != "" {
		t.Errorf("of a new profile with the name of a deleted one: %+v", r)
	}
}
