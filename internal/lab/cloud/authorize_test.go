package cloud_test

import (
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/aws/aws-sdk-go-v2/aws"
	awsec2 "github.com/aws/aws-sdk-go-v2/service/ec2"
	"github.com/aws/aws-sdk-go-v2/service/ec2/types"
	awselb "github.com/aws/aws-sdk-go-v2/service/elasticloadbalancingv2"
	elbtypes "github.com/aws/aws-sdk-go-v2/service/elasticloadbalancingv2/types"
	awsssm "github.com/aws/aws-sdk-go-v2/service/ssm"
	ssmtypes "github.com/aws/aws-sdk-go-v2/service/ssm/types"
	awssts "github.com/aws/aws-sdk-go-v2/service/sts"

	"github.com/k8s-from-scratch/terraform-provider-k8s/internal/lab/cloud/cloudtest"
	"github.com/k8s-from-scratch/terraform-provider-k8s/internal/lab/cloud/ec2"
	"github.com/k8s-from-scratch/terraform-provider-k8s/internal/lab/cloud/iam"
)

// TestUserOnEC2: what a policy does not allow is refused, in EC2's words, before anything happens.
func TestUserOnEC2(t *testing.T) {
	l := cloudtest.New(t)
	ctx := t.Context()
	s := l.NewSite(t)
	const ofDemo = `"Condition":{"StringEquals":{"aws:ResourceTag/cluster":"demo"}}`
	dev := l.User(t,
		`{"Effect":"Allow","Action":["ec2:DescribeVpcs","ec2:CreateVpc"],"Resource":"*"}`,
		`{"Effect":"Allow","Action":"ec2:CreateTags","Resource":"*","Condition":{"StringEquals":{"ec2:CreateAction":"CreateVpc","aws:RequestTag/cluster":"demo"}}}`,
		`{"Effect":"Allow","Action":"ec2:DeleteVpc","Resource":"arn:aws:ec2:*:*:vpc/*",`+ofDemo+`}`,
		`{"Effect":"Allow","Action":"ec2:RunInstances","Resource":["arn:aws:ec2:*::image/*","arn:aws:ec2:*:*:subnet/*","arn:aws:ec2:*:*:security-group/*","arn:aws:ec2:*:*:instance/*","arn:aws:ec2:*:*:network-interface/*"]}`,
	)
	cloudtest.Must[*awsec2.DescribeVpcsOutput](t)(dev.DescribeVpcs(ctx, &awsec2.DescribeVpcsInput{}))
	_, err := dev.DescribeSubnets(ctx, &awsec2.DescribeSubnetsInput{})
	cloudtest.Refused(t, err, "UnauthorizedOperation")
	if want := "You are not authorized to perform this operation. User: arn:aws:iam::123456789012:user/dev is not authorized to perform: ec2:DescribeSubnets because no identity-based policy allows the ec2:DescribeSubnets action"; !strings.HasSuffix(err.Error(), want) {
		t.Error(err) // no resource, and no encoded message
	}
	_, err = dev.StopInstances(ctx, &awsec2.StopInstancesInput{InstanceIds: []string{"i-00000000000000001"}})
	cloudtest.Refused(t, err, "UnauthorizedOperation")
	if want := "User: arn:aws:iam::123456789012:user/dev is not authorized to perform: ec2:StopInstances on resource: arn:aws:ec2:us-east-1:123456789012:instance/i-00000000000000001 because no identity-based policy allows the ec2:StopInstances action. Encoded authorization failure message: "; !strings.Contains(err.Error(), want) {
		t.Error(err)
	}
	_, blob, _ := strings.Cut(err.Error(), "failure message: ")
	decoded := cloudtest.Must[*awssts.DecodeAuthorizationMessageOutput](t)(l.STS.DecodeAuthorizationMessage(ctx, &awssts.DecodeAuthorizationMessageInput{EncodedMessage: &blob})).DecodedMessage
	if !strings.Contains(*decoded, `"action":"ec2:StopInstances"`) {
		t.Errorf("decoded: %s", *decoded)
	}

	create := func(cluster string) (*awsec2.CreateVpcOutput, error) {
		return dev.CreateVpc(ctx, &awsec2.CreateVpcInput{CidrBlock: aws.String("10.9.0.0/16"), TagSpecifications: cloudtest.Tags(types.ResourceTypeVpc, "cluster", cluster)})
	}
	before := l.Account.Overview().Total
	_, err = create("prod")
	cloudtest.Refused(t, err, "UnauthorizedOperation")
	if !strings.Contains(err.Error(), "perform: ec2:CreateTags on resource: arn:aws:ec2:us-east-1:123456789012:vpc/*") {
		t.Error(err)
	}
	if after := l.Account.Overview().Total; after != before {
		t.Error("a refused request made something")
	}
	mine := cloudtest.Must[*awsec2.CreateVpcOutput](t)(create("demo")).Vpc.VpcId
	remove := func(id *string) error {
		_, err := dev.DeleteVpc(ctx, &awsec2.DeleteVpcInput{VpcId: id})
		return err
	}
	cloudtest.Refused(t, remove(&s.VPC), "UnauthorizedOperation")
	cloudtest.Refused(t, remove(mine), "")
	cloudtest.Refused(t, remove(mine), "UnauthorizedOperation") // its tags are gone with it
	_, err = dev.RunInstances(ctx, s.RunInput())
	cloudtest.Refused(t, err, "UnauthorizedOperation")
	if !strings.Contains(err.Error(), "ec2:RunInstances on resource: arn:aws:ec2:us-east-1:123456789012:volume/*") {
		t.Error(err)
	}
	_, err = dev.CreateTags(ctx, &awsec2.CreateTagsInput{Resources: []string{s.VPC}, Tags: []types.Tag{{Key: aws.String("cluster"), Value: aws.String("demo")}}})
	cloudtest.Refused(t, err, "UnauthorizedOperation") // not at a creation
}

// TestUserNamesResources: whichever way a request names a resource, its permission is asked for, also
// if the resource does not exist or is not visible yet.
func TestUserNamesResources(t *testing.T) {
	l := cloudtest.New(t)
	ctx := t.Context()
	s := l.NewSite(t)
	const ofDemo = `"Condition":{"StringEquals":{"aws:ResourceTag/cluster":"demo"}}`
	nobody := l.User(t, `{"Effect":"Allow","Action":"ec2:Describe*","Resource":"*"}`)
	for name, call := range map[string]func() error{
		"key-pair/main": func() error {
			_, err := nobody.DeleteKeyPair(ctx, &awsec2.DeleteKeyPairInput{KeyName: aws.String("main")})
			return err
		},
		"key-pair/new": func() error {
			_, err := nobody.CreateKeyPair(ctx, &awsec2.CreateKeyPairInput{KeyName: aws.String("new")})
			return err
		},
		"vpc/vpc-00000000000000001": func() error {
			_, err := nobody.DeleteVpc(ctx, &awsec2.DeleteVpcInput{VpcId: aws.String("vpc-00000000000000001")})
			return err
		},
		"route-table/*": func() error { // nothing says what an unknown association belongs to
			_, err := nobody.DisassociateRouteTable(ctx, &awsec2.DisassociateRouteTableInput{AssociationId: aws.String("rtbassoc-00000000000000001")})
			return err
		},
		"elastic-ip/*": func() error {
			_, err := nobody.AllocateAddress(ctx, &awsec2.AllocateAddressInput{})
			return err
		},
	} {
		err := call()
		cloudtest.Refused(t, err, "UnauthorizedOperation")
		if !strings.Contains(err.Error(), " on resource: arn:aws:ec2:us-east-1:123456789012:"+name+" because") {
			t.Errorf("%s: %v", name, err)
		}
	}

	dev := l.User(t,
		`{"Effect":"Allow","Action":["ec2:AllocateAddress","ec2:CreateTags","ec2:CreateSubnet","ec2:CreateVpc","ec2:DisassociateAddress"],"Resource":"*"}`,
		`{"Effect":"Allow","Action":["ec2:AssociateAddress","ec2:ModifyVpcAttribute","ec2:ReleaseAddress"],"Resource":"*",`+ofDemo+`}`,
		`{"Effect":"Allow","Action":"ec2:DeleteVpc","Resource":"*"}`)
	a := cloudtest.Must[*awsec2.AllocateAddressOutput](t)(dev.AllocateAddress(ctx, &awsec2.AllocateAddressInput{TagSpecifications: cloudtest.Tags(types.ResourceTypeElasticIp, "cluster", "demo")}))
	i := *l.Run(t, s.RunInput()).InstanceId
	associate := func(in *awsec2.AssociateAddressInput) error { _, err := dev.AssociateAddress(ctx, in); return err }
	cloudtest.Refused(t, associate(&awsec2.AssociateAddressInput{PublicIp: a.PublicIp, InstanceId: &i}), "UnauthorizedOperation") // the instance has no tag
	cloudtest.Must[*awsec2.CreateTagsOutput](t)(l.CreateTags(ctx, &awsec2.CreateTagsInput{Resources: []string{i}, Tags: []types.Tag{{Key: aws.String("cluster"), Value: aws.String("demo")}}}))
	cloudtest.Refused(t, associate(&awsec2.AssociateAddressInput{PublicIp: a.PublicIp, InstanceId: &i}), "")
	cloudtest.Refused(t, associate(&awsec2.AssociateAddressInput{PublicIp: aws.String("192.0.2.1"), InstanceId: &i}), "UnauthorizedOperation")

	l.Control(t, "POST", "/_lab/faults", map[string]any{"kind": "eventual", "calls": 1}, nil)
	v := cloudtest.Must[*awsec2.CreateVpcOutput](t)(dev.CreateVpc(ctx, &awsec2.CreateVpcInput{CidrBlock: aws.String("10.9.0.0/16"), TagSpecifications: cloudtest.Tags(types.ResourceTypeVpc, "cluster", "demo")})).Vpc.VpcId
	modify := func() error {
		_, err := dev.ModifyVpcAttribute(ctx, &awsec2.ModifyVpcAttributeInput{VpcId: v, EnableDnsHostnames: &types.AttributeBooleanValue{Value: aws.Bool(true)}})
		return err
	}
	cloudtest.Refused(t, modify(), "UnauthorizedOperation") // EC2 does not know the tags yet
	cloudtest.Refused(t, modify(), "")
	// Without a condition it is missing, and not forbidden.
	_, err := dev.DeleteVpc(ctx, &awsec2.DeleteVpcInput{VpcId: aws.String("vpc-00000000000000001")})
	cloudtest.Refused(t, err, "InvalidVpcID.NotFound")
}

func TestUserOnParameters(t *testing.T) {
	l := cloudtest.New(t)
	ctx := t.Context()
	dev := l.User(t, `{"Effect":"Allow","Action":["ssm:PutParameter","ssm:GetParameter*"],"Resource":["arn:aws:ssm:*:*:parameter/k8s/*","arn:aws:ssm:*::parameter/aws/service/debian/*"]}`)
	put := func(name string, given ...ssmtypes.Tag) error {
		_, err := dev.SSM.PutParameter(ctx, &awsssm.PutParameterInput{Name: &name, Value: aws.String("x"), Type: ssmtypes.ParameterTypeString, Tags: given})
		return err
	}
	cloudtest.Refused(t, put("/k8s/demo/ca"), "")
	err := put("/other/ca")
	cloudtest.Refused(t, err, "AccessDeniedException")
	if !strings.Contains(err.Error(), "ssm:PutParameter on resource: arn:aws:ssm:us-east-1:123456789012:parameter/other/ca") {
		t.Error(err)
	}
	cloudtest.Refused(t, put("/k8s/demo/key", ssmtypes.Tag{Key: aws.String("a"), Value: aws.String("b")}), "AccessDeniedException") // ssm:AddTagsToResource
	for name, code := range map[string]string{"/k8s/demo/ca": "", "/k8s/demo/ca:1": "", "/other/ca": "AccessDeniedException", ec2.Image{Release: "13"}.PublicParameter(): ""} {
		_, err := dev.SSM.GetParameter(ctx, &awsssm.GetParameterInput{Name: &name})
		cloudtest.Refused(t, err, code)
	}
	_, err = dev.SSM.DeleteParameters(ctx, &awsssm.DeleteParametersInput{Names: []string{"/k8s/demo/ca"}})
	cloudtest.Refused(t, err, "AccessDeniedException")
}

// TestUserAndRole: a user needs permission to assume a role, a session has the role's policies less
// what its own policy takes away, and all of it outlives a restart.
func TestUserAndRole(t *testing.T) {
	l := cloudtest.New(t)
	ctx := t.Context()
	const arn = "arn:aws:iam::123456789012:role/deploy"
	if _, err := l.Account.Identities().PutRole("deploy", iam.Entity{Policies: []string{`{"Version":"2012-10-17","Statement":[{"Effect":"Allow","Action":"ec2:Describe*","Resource":"*"}]}`}}, ""); err != nil {
		t.Fatal(err)
	}
	assume := func(as *cloudtest.Lab, policy string) (*awssts.AssumeRoleOutput, error) {
		in := &awssts.AssumeRoleInput{RoleArn: aws.String(arn), RoleSessionName: aws.String("test")}
		if policy != "" {
			in.Policy = &policy
		}
		return as.STS.AssumeRole(ctx, in)
	}
	_, err := assume(l.User(t, `{"Effect":"Allow","Action":"ec2:*","Resource":"*"}`), "")
	cloudtest.Refused(t, err, "AccessDenied")
	dev := l.User(t, `{"Effect":"Allow","Action":"sts:AssumeRole","Resource":"`+arn+`"}`)
	cloudtest.Must[*awssts.GetCallerIdentityOutput](t)(dev.STS.GetCallerIdentity(ctx, &awssts.GetCallerIdentityInput{})) // needs no permission
	_, err = assume(dev, "{}")
	cloudtest.Refused(t, err, "MalformedPolicyDocument")
	for policy, subnets := range map[string]string{"": "", `{"Version":"2012-10-17","Statement":[{"Effect":"Allow","Action":"ec2:DescribeVpcs","Resource":"*"}]}`: "UnauthorizedOperation"} {
		c := cloudtest.Must[*awssts.AssumeRoleOutput](t)(assume(dev, policy)).Credentials
		l.Account.Close()
		l.Open(t)
		as := l.With(*c.AccessKeyId, *c.SecretAccessKey, *c.SessionToken)
		_, err := as.DescribeVpcs(ctx, &awsec2.DescribeVpcsInput{})
		cloudtest.Refused(t, err, "")
		_, err = as.DescribeSubnets(ctx, &awsec2.DescribeSubnetsInput{})
		cloudtest.Refused(t, err, subnets)
		_, err = as.CreateVpc(ctx, &awsec2.CreateVpcInput{CidrBlock: aws.String("10.9.0.0/16")})
		cloudtest.Refused(t, err, "UnauthorizedOperation")
		u, _ := l.Account.Identities().List()
		if len(u) != 1 || u[0].SecretAccessKey != "" {
			t.Errorf("users: %+v", u)
		}
		dev = l.User(t, `{"Effect":"Allow","Action":"sts:AssumeRole","Resource":"`+arn+`"}`)
	}
	if info, err := os.Stat(filepath.Join(l.Dir, "iam.json")); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("the file of users and roles: %v, %v", info, err)
	}
	if _, err := l.Account.Identities().PutUser("a b", iam.Entity{}); err == nil {
		t.Error("a name with a space")
	}
	if _, err := l.Account.Identities().PutUser("ab", iam.Entity{Policies: []string{"{}"}}); err == nil {
		t.Error("a malformed policy")
	}
	// Without the role its sessions may do nothing; without the user the key is unknown.
	c := cloudtest.Must[*awssts.AssumeRoleOutput](t)(assume(dev, "")).Credentials
	as := l.With(*c.AccessKeyId, *c.SecretAccessKey, *c.SessionToken)
	for _, path := range []string{"/_lab/iam/roles/deploy", "/_lab/iam/users/dev"} {
		for _, want := range []int{http.StatusNoContent, http.StatusNotFound} {
			if got := l.Control(t, http.MethodDelete, path, nil, nil); got != want {
				t.Errorf("DELETE %s: %d, want %d", path, got, want)
			}
		}
	}
	_, err = as.DescribeVpcs(ctx, &awsec2.DescribeVpcsInput{})
	cloudtest.Refused(t, err, "UnauthorizedOperation")
	_, err = dev.DescribeVpcs(ctx, &awsec2.DescribeVpcsInput{})
	cloudtest.Refused(t, err, "AuthFailure")
}

// TestTrustedRoles: a role is assumed only by whom it trusts. Whom its trust policy names needs no
// permission; whose account it names does. The owner of the account is no exception.
func TestTrustedRoles(t *testing.T) {
	l := cloudtest.New(t)
	ctx := t.Context()
	put := func(trust string) {
		t.Helper()
		body := map[string]any{"policies": []string{cloudtest.Everything}, "trust": `{"Version":"2012-10-17","Statement":[` + trust + `]}`}
		if got := l.Control(t, http.MethodPut, "/_lab/iam/roles/deploy", body, nil); got != http.StatusOK {
			t.Fatalf("the role was refused: %d", got)
		}
	}
	assume := func(as *cloudtest.Lab, external *string, policy ...string) error {
		in := &awssts.AssumeRoleInput{RoleArn: aws.String("arn:aws:iam::123456789012:role/deploy"), RoleSessionName: aws.String("test"), ExternalId: external}
		for _, p := range policy {
			in.Policy = &p
		}
		_, err := as.STS.AssumeRole(ctx, in)
		return err
	}
	nobody := l.User(t, `{"Effect":"Allow","Action":"ec2:*","Resource":"*"}`)
	put(`{"Effect":"Allow","Principal":{"AWS":"arn:aws:iam::123456789012:root"},"Action":"sts:AssumeRole"}`)
	cloudtest.Refused(t, assume(l, nil), "")
	cloudtest.Refused(t, assume(nobody, nil), "AccessDenied")
	cloudtest.Refused(t, assume(l, nil, strings.Repeat(" ", 2048)+"{}"), "ValidationError")
	put(`{"Effect":"Allow","Principal":{"AWS":"arn:aws:iam::123456789012:user/dev"},"Action":"sts:AssumeRole","Condition":{"StringEquals":{"sts:ExternalId":"x-1"}}}`)
	cloudtest.Refused(t, assume(nobody, aws.String("x-1")), "")
	cloudtest.Refused(t, assume(nobody, aws.String("x-2")), "AccessDenied")
	err := assume(l, aws.String("x-1"))
	cloudtest.Refused(t, err, "AccessDenied")
	if want := "User: arn:aws:iam::123456789012:user/lab is not authorized to perform: sts:AssumeRole on resource: arn:aws:iam::123456789012:role/deploy"; !strings.HasSuffix(err.Error(), want) {
		t.Error(err)
	}
	forbidden := l.User(t, `{"Effect":"Deny","Action":"sts:*","Resource":"*"}`)
	cloudtest.Refused(t, assume(forbidden, aws.String("x-1")), "AccessDenied")
	if got := l.Control(t, http.MethodPut, "/_lab/iam/roles/deploy", map[string]any{"trust": "{}"}, nil); got != http.StatusBadRequest {
		t.Errorf("a malformed trust policy: %d", got)
	}
}

// TestUserOnLoadBalancers: what a policy does not allow is refused, in the words of the service.
func TestUserOnLoadBalancers(t *testing.T) {
	l := cloudtest.New(t)
	s := l.NewSite(t)
	ctx := t.Context()
	tags := func(key, value string) []elbtypes.Tag { return []elbtypes.Tag{{Key: &key, Value: &value}} }
	input := func(name string) *awselb.CreateLoadBalancerInput {
		return &awselb.CreateLoadBalancerInput{
			Name: &name, Type: elbtypes.LoadBalancerTypeEnumNetwork, Scheme: elbtypes.LoadBalancerSchemeEnumInternal, Subnets: []string{s.Subnet}, Tags: tags("cluster", "demo"),
		}
	}
	arn := *cloudtest.Must[*awselb.CreateLoadBalancerOutput](t)(l.ELB.CreateLoadBalancer(ctx, input("api"))).LoadBalancers[0].LoadBalancerArn
	dev := l.User(t,
		`{"Effect":"Allow","Action":["elasticloadbalancing:Describe*"],"Resource":"*"}`,
		`{"Effect":"Allow","Action":"elasticloadbalancing:CreateLoadBalancer","Resource":"arn:aws:elasticloadbalancing:*:*:loadbalancer/net/dev*","Condition":{"StringEquals":{"aws:RequestTag/cluster":"demo"}}}`,
		`{"Effect":"Allow","Action":"elasticloadbalancing:AddTags","Resource":"*","Condition":{"StringEquals":{"elasticloadbalancing:CreateAction":"CreateLoadBalancer"}}}`,
		`{"Effect":"Allow","Action":"elasticloadbalancing:DeleteLoadBalancer","Resource":"*","Condition":{"StringEquals":{"aws:ResourceTag/cluster":"demo"}}}`,
	)
	cloudtest.Must[*awselb.DescribeLoadBalancersOutput](t)(dev.ELB.DescribeLoadBalancers(ctx, &awselb.DescribeLoadBalancersInput{LoadBalancerArns: []string{arn}}))
	_, err := dev.ELB.CreateTargetGroup(ctx, &awselb.CreateTargetGroupInput{
		Name: aws.String("x"), Protocol: elbtypes.ProtocolEnumTcp, Port: aws.Int32(6443), VpcId: &s.VPC, TargetType: elbtypes.TargetTypeEnumInstance,
	})
	cloudtest.Refused(t, err, "AccessDenied")
	if want := "User: arn:aws:iam::123456789012:user/dev is not authorized to perform: elasticloadbalancing:CreateTargetGroup on resource: arn:aws:elasticloadbalancing:us-east-1:123456789012:targetgroup/x/*"; !strings.Contains(err.Error(), want) {
		t.Error(err)
	}
	_, err = dev.ELB.CreateLoadBalancer(ctx, input("other"))
	cloudtest.Refused(t, err, "AccessDenied")
	untagged := input("dev")
	untagged.Tags = nil
	_, err = dev.ELB.CreateLoadBalancer(ctx, untagged)
	cloudtest.Refused(t, err, "AccessDenied")
	cloudtest.Must[*awselb.CreateLoadBalancerOutput](t)(dev.ELB.CreateLoadBalancer(ctx, input("dev")))
	_, err = dev.ELB.AddTags(ctx, &awselb.AddTagsInput{ResourceArns: []string{arn}, Tags: tags("a", "b")})
	cloudtest.Refused(t, err, "AccessDenied")
	cloudtest.Must[*awselb.RemoveTagsOutput](t)(l.ELB.RemoveTags(ctx, &awselb.RemoveTagsInput{ResourceArns: []string{arn}, TagKeys: []string{"cluster"}}))
	_, err = dev.ELB.DeleteLoadBalancer(ctx, &awselb.DeleteLoadBalancerInput{LoadBalancerArn: &arn})
	cloudtest.Refused(t, err, "AccessDenied")
	cloudtest.Must[*awselb.AddTagsOutput](t)(l.ELB.AddTags(ctx, &awselb.AddTagsInput{ResourceArns: []string{arn}, Tags: tags("cluster", "demo")}))
	cloudtest.Must[*awselb.DeleteLoadBalancerOutput](t)(dev.ELB.DeleteLoadBalancer(ctx, &awselb.DeleteLoadBalancerInput{LoadBalancerArn: &arn}))

	_, err = l.With("AKIAUNKNOWN", "x", "").ELB.DescribeLoadBalancers(ctx, &awselb.DescribeLoadBalancersInput{})
	cloudtest.Refused(t, err, "InvalidClientTokenId")
	_, err = l.With(cloudtest.AccessKeyID, "wrong", "").ELB.DescribeLoadBalancers(ctx, &awselb.DescribeLoadBalancersInput{})
	cloudtest.Refused(t, err, "SignatureDoesNotMatch")
}
