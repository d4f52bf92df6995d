package cloud_test

import (
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	awsec2 "github.com/aws/aws-sdk-go-v2/service/ec2"
	"github.com/aws/aws-sdk-go-v2/service/ec2/types"
	awselb "github.com/aws/aws-sdk-go-v2/service/elasticloadbalancingv2"
	elbtypes "github.com/aws/aws-sdk-go-v2/service/elasticloadbalancingv2/types"
	awsssm "github.com/aws/aws-sdk-go-v2/service/ssm"
	ssmtypes "github.com/aws/aws-sdk-go-v2/service/ssm/types"
	awssts "github.com/aws/aws-sdk-go-v2/service/sts"

	"github.com/k8s-from-scratch/terraform-provider-k8s/internal/lab/cloud/ec2"
)

// everything is a policy that allows all actions.
const everything = `{"Version":"2012-10-17","Statement":[{"Effect":"Allow","Action":"*","Resource":"*"}]}`

// user returns the lab as a user with the statements of one policy sees it.
func (l *lab) user(t *testing.T, statements ...string) *lab {
	t.Helper()
	u, err := l.cloud.Identities().PutUser("dev", []string{`{"Version":"2012-10-17","Statement":[` + strings.Join(statements, ",") + `]}`})
	if err != nil {
		t.Fatal(err)
	}
	return l.with(u.AccessKeyID, u.SecretAccessKey, "")
}

// TestUserOnEC2: what a policy does not allow is refused, in EC2's words, before anything happens.
func TestUserOnEC2(t *testing.T) {
	l := newLab(t)
	ctx := t.Context()
	s := l.site(t)
	const ofDemo = `"Condition":{"StringEquals":{"aws:ResourceTag/cluster":"demo"}}`
	dev := l.user(t,
		`{"Effect":"Allow","Action":["ec2:DescribeVpcs","ec2:CreateVpc"],"Resource":"*"}`,
		`{"Effect":"Allow","Action":"ec2:CreateTags","Resource":"*","Condition":{"StringEquals":{"ec2:CreateAction":"CreateVpc","aws:RequestTag/cluster":"demo"}}}`,
		`{"Effect":"Allow","Action":"ec2:DeleteVpc","Resource":"arn:aws:ec2:*:*:vpc/*",`+ofDemo+`}`,
		`{"Effect":"Allow","Action":"ec2:RunInstances","Resource":["arn:aws:ec2:*::image/*","arn:aws:ec2:*:*:subnet/*","arn:aws:ec2:*:*:security-group/*","arn:aws:ec2:*:*:instance/*","arn:aws:ec2:*:*:network-interface/*"]}`,
	)
	must[*awsec2.DescribeVpcsOutput](t)(dev.DescribeVpcs(ctx, &awsec2.DescribeVpcsInput{}))
	_, err := dev.DescribeSubnets(ctx, &awsec2.DescribeSubnetsInput{})
	refused(t, err, "UnauthorizedOperation")
	if want := "You are not authorized to perform this operation. User: arn:aws:iam::123456789012:user/dev is not authorized to perform: ec2:DescribeSubnets because no identity-based policy allows the ec2:DescribeSubnets action"; !strings.HasSuffix(err.Error(), want) {
		t.Error(err) // no resource, and no encoded message
	}
	_, err = dev.StopInstances(ctx, &awsec2.StopInstancesInput{InstanceIds: []string{"i-00000000000000001"}})
	refused(t, err, "UnauthorizedOperation")
	if want := "User: arn:aws:iam::123456789012:user/dev is not authorized to perform: ec2:StopInstances on resource: arn:aws:ec2:us-east-1:123456789012:instance/i-00000000000000001 because no identity-based policy allows the ec2:StopInstances action. Encoded authorization failure message: "; !strings.Contains(err.Error(), want) {
		t.Error(err)
	}
	_, blob, _ := strings.Cut(err.Error(), "failure message: ")
	decoded := must[*awssts.DecodeAuthorizationMessageOutput](t)(l.sts.DecodeAuthorizationMessage(ctx, &awssts.DecodeAuthorizationMessageInput{EncodedMessage: &blob})).DecodedMessage
	if !strings.Contains(*decoded, `"action":"ec2:StopInstances"`) {
		t.Errorf("decoded: %s", *decoded)
	}

	create := func(cluster string) (*awsec2.CreateVpcOutput, error) {
		return dev.CreateVpc(ctx, &awsec2.CreateVpcInput{CidrBlock: aws.String("10.9.0.0/16"), TagSpecifications: tags(types.ResourceTypeVpc, "cluster", cluster)})
	}
	before := l.cloud.Overview().Total
	_, err = create("prod")
	refused(t, err, "UnauthorizedOperation")
	if !strings.Contains(err.Error(), "perform: ec2:CreateTags on resource: arn:aws:ec2:us-east-1:123456789012:vpc/*") {
		t.Error(err)
	}
	if after := l.cloud.Overview().Total; after != before {
		t.Error("a refused request made something")
	}
	mine := must[*awsec2.CreateVpcOutput](t)(create("demo")).Vpc.VpcId
	remove := func(id *string) error {
		_, err := dev.DeleteVpc(ctx, &awsec2.DeleteVpcInput{VpcId: id})
		return err
	}
	refused(t, remove(&s.vpc), "UnauthorizedOperation")
	refused(t, remove(mine), "")
	refused(t, remove(mine), "UnauthorizedOperation") // its tags are gone with it
	_, err = dev.RunInstances(ctx, s.runInput())
	refused(t, err, "UnauthorizedOperation")
	if !strings.Contains(err.Error(), "ec2:RunInstances on resource: arn:aws:ec2:us-east-1:123456789012:volume/*") {
		t.Error(err)
	}
	_, err = dev.CreateTags(ctx, &awsec2.CreateTagsInput{Resources: []string{s.vpc}, Tags: []types.Tag{{Key: aws.String("cluster"), Value: aws.String("demo")}}})
	refused(t, err, "UnauthorizedOperation") // not at a creation
}

// TestUserNamesResources: whichever way a request names a resource, its permission is asked for, also
// if the resource does not exist or is not visible yet.
func TestUserNamesResources(t *testing.T) {
	l := newLab(t)
	ctx := t.Context()
	s := l.site(t)
	const ofDemo = `"Condition":{"StringEquals":{"aws:ResourceTag/cluster":"demo"}}`
	nobody := l.user(t, `{"Effect":"Allow","Action":"ec2:Describe*","Resource":"*"}`)
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
		"*/*": func() error { // nothing says what an association belongs to
			_, err := nobody.DisassociateAddress(ctx, &awsec2.DisassociateAddressInput{AssociationId: aws.String("eipassoc-00000000000000001")})
			return err
		},
		"elastic-ip/*": func() error {
			_, err := nobody.AllocateAddress(ctx, &awsec2.AllocateAddressInput{})
			return err
		},
	} {
		err := call()
		refused(t, err, "UnauthorizedOperation")
		if !strings.Contains(err.Error(), " on resource: arn:aws:ec2:us-east-1:123456789012:"+name+" because") {
			t.Errorf("%s: %v", name, err)
		}
	}

	dev := l.user(t,
		`{"Effect":"Allow","Action":["ec2:AllocateAddress","ec2:CreateTags","ec2:CreateSubnet","ec2:CreateVpc","ec2:DisassociateAddress"],"Resource":"*"}`,
		`{"Effect":"Allow","Action":["ec2:AssociateAddress","ec2:ModifyVpcAttribute","ec2:ReleaseAddress"],"Resource":"*",`+ofDemo+`}`,
		`{"Effect":"Allow","Action":"ec2:DeleteVpc","Resource":"*"}`)
	a := must[*awsec2.AllocateAddressOutput](t)(dev.AllocateAddress(ctx, &awsec2.AllocateAddressInput{TagSpecifications: tags(types.ResourceTypeElasticIp, "cluster", "demo")}))
	i := *l.run(t, s.runInput()).InstanceId
	associate := func(in *awsec2.AssociateAddressInput) error { _, err := dev.AssociateAddress(ctx, in); return err }
	refused(t, associate(&awsec2.AssociateAddressInput{PublicIp: a.PublicIp, InstanceId: &i}), "UnauthorizedOperation") // the instance has no tag
	must[*awsec2.CreateTagsOutput](t)(l.CreateTags(ctx, &awsec2.CreateTagsInput{Resources: []string{i}, Tags: []types.Tag{{Key: aws.String("cluster"), Value: aws.String("demo")}}}))
	refused(t, associate(&awsec2.AssociateAddressInput{PublicIp: a.PublicIp, InstanceId: &i}), "")
	refused(t, associate(&awsec2.AssociateAddressInput{PublicIp: aws.String("192.0.2.1"), InstanceId: &i}), "UnauthorizedOperation")

	l.control(t, "POST", "/_lab/faults", map[string]any{"kind": "eventual", "calls": 1}, nil)
	v := must[*awsec2.CreateVpcOutput](t)(dev.CreateVpc(ctx, &awsec2.CreateVpcInput{CidrBlock: aws.String("10.9.0.0/16"), TagSpecifications: tags(types.ResourceTypeVpc, "cluster", "demo")})).Vpc.VpcId
	modify := func() error {
		_, err := dev.ModifyVpcAttribute(ctx, &awsec2.ModifyVpcAttributeInput{VpcId: v, EnableDnsHostnames: &types.AttributeBooleanValue{Value: aws.Bool(true)}})
		return err
	}
	refused(t, modify(), "UnauthorizedOperation") // EC2 does not know the tags yet
	refused(t, modify(), "")
	// Without a condition it is missing, and not forbidden.
	_, err := dev.DeleteVpc(ctx, &awsec2.DeleteVpcInput{VpcId: aws.String("vpc-00000000000000001")})
	refused(t, err, "InvalidVpcID.NotFound")
}

func TestUserOnParameters(t *testing.T) {
	l := newLab(t)
	ctx := t.Context()
	dev := l.user(t, `{"Effect":"Allow","Action":["ssm:PutParameter","ssm:GetParameter*"],"Resource":["arn:aws:ssm:*:*:parameter/k8s/*","arn:aws:ssm:*::parameter/aws/service/debian/*"]}`)
	put := func(name string, given ...ssmtypes.Tag) error {
		_, err := dev.ssm.PutParameter(ctx, &awsssm.PutParameterInput{Name: &name, Value: aws.String("x"), Type: ssmtypes.ParameterTypeString, Tags: given})
		return err
	}
	refused(t, put("/k8s/demo/ca"), "")
	err := put("/other/ca")
	refused(t, err, "AccessDeniedException")
	if !strings.Contains(err.Error(), "ssm:PutParameter on resource: arn:aws:ssm:us-east-1:123456789012:parameter/other/ca") {
		t.Error(err)
	}
	refused(t, put("/k8s/demo/key", ssmtypes.Tag{Key: aws.String("a"), Value: aws.String("b")}), "AccessDeniedException") // ssm:AddTagsToResource
	for name, code := range map[string]string{"/k8s/demo/ca": "", "/k8s/demo/ca:1": "", "/other/ca": "AccessDeniedException", ec2.Image{Release: "13"}.PublicParameter(): ""} {
		_, err := dev.ssm.GetParameter(ctx, &awsssm.GetParameterInput{Name: &name})
		refused(t, err, code)
	}
	_, err = dev.ssm.DeleteParameters(ctx, &awsssm.DeleteParametersInput{Names: []string{"/k8s/demo/ca"}})
	refused(t, err, "AccessDeniedException")
}

// TestUserAndRole: a user needs permission to assume a role, a session has the role's policies less
// what its own policy takes away, and all of it outlives a restart.
func TestUserAndRole(t *testing.T) {
	l := newLab(t)
	ctx := t.Context()
	const arn = "arn:aws:iam::123456789012:role/deploy"
	if _, err := l.cloud.Identities().PutRole("deploy", []string{`{"Version":"2012-10-17","Statement":[{"Effect":"Allow","Action":"ec2:Describe*","Resource":"*"}]}`}, ""); err != nil {
		t.Fatal(err)
	}
	assume := func(as *lab, policy string) (*awssts.AssumeRoleOutput, error) {
		in := &awssts.AssumeRoleInput{RoleArn: aws.String(arn), RoleSessionName: aws.String("test")}
		if policy != "" {
			in.Policy = &policy
		}
		return as.sts.AssumeRole(ctx, in)
	}
	_, err := assume(l.user(t, `{"Effect":"Allow","Action":"ec2:*","Resource":"*"}`), "")
	refused(t, err, "AccessDenied")
	dev := l.user(t, `{"Effect":"Allow","Action":"sts:AssumeRole","Resource":"`+arn+`"}`)
	must[*awssts.GetCallerIdentityOutput](t)(dev.sts.GetCallerIdentity(ctx, &awssts.GetCallerIdentityInput{})) // needs no permission
	_, err = assume(dev, "{}")
	refused(t, err, "MalformedPolicyDocument")
	for policy, subnets := range map[string]string{"": "", `{"Version":"2012-10-17","Statement":[{"Effect":"Allow","Action":"ec2:DescribeVpcs","Resource":"*"}]}`: "UnauthorizedOperation"} {
		c := must[*awssts.AssumeRoleOutput](t)(assume(dev, policy)).Credentials
		l.cloud.Close()
		l.open(t)
		as := l.with(*c.AccessKeyId, *c.SecretAccessKey, *c.SessionToken)
		_, err := as.DescribeVpcs(ctx, &awsec2.DescribeVpcsInput{})
		refused(t, err, "")
		_, err = as.DescribeSubnets(ctx, &awsec2.DescribeSubnetsInput{})
		refused(t, err, subnets)
		_, err = as.CreateVpc(ctx, &awsec2.CreateVpcInput{CidrBlock: aws.String("10.9.0.0/16")})
		refused(t, err, "UnauthorizedOperation")
		u, _ := l.cloud.Identities().List()
		if len(u) != 1 || u[0].SecretAccessKey != "" {
			t.Errorf("users: %+v", u)
		}
		dev = l.user(t, `{"Effect":"Allow","Action":"sts:AssumeRole","Resource":"`+arn+`"}`)
	}
	if info, err := os.Stat(filepath.Join(l.dir, "iam.json")); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("the file of users and roles: %v, %v", info, err)
	}
	if _, err := l.cloud.Identities().PutUser("a b", nil); err == nil {
		t.Error("a name with a space")
	}
	if _, err := l.cloud.Identities().PutUser("ab", []string{"{}"}); err == nil {
		t.Error("a malformed policy")
	}
	// Without the role its sessions may do nothing; without the user the key is unknown.
	c := must[*awssts.AssumeRoleOutput](t)(assume(dev, "")).Credentials
	as := l.with(*c.AccessKeyId, *c.SecretAccessKey, *c.SessionToken)
	for _, path := range []string{"/_lab/iam/roles/deploy", "/_lab/iam/users/dev"} {
		for _, want := range []int{http.StatusNoContent, http.StatusNotFound} {
			if got := l.control(t, http.MethodDelete, path, nil, nil); got != want {
				t.Errorf("DELETE %s: %d, want %d", path, got, want)
			}
		}
	}
	_, err = as.DescribeVpcs(ctx, &awsec2.DescribeVpcsInput{})
	refused(t, err, "UnauthorizedOperation")
	_, err = dev.DescribeVpcs(ctx, &awsec2.DescribeVpcsInput{})
	refused(t, err, "AuthFailure")
}

// TestTrustedRoles: a role is assumed only by whom it trusts. Whom its trust policy names needs no
// permission; whose account it names does. The owner of the account is no exception.
func TestTrustedRoles(t *testing.T) {
	l := newLab(t)
	ctx := t.Context()
	put := func(trust string) {
		t.Helper()
		body := map[string]any{"policies": []string{everything}, "trust": `{"Version":"2012-10-17","Statement":[` + trust + `]}`}
		if got := l.control(t, http.MethodPut, "/_lab/iam/roles/deploy", body, nil); got != http.StatusOK {
			t.Fatalf("the role was refused: %d", got)
		}
	}
	assume := func(as *lab, external *string, policy ...string) error {
		in := &awssts.AssumeRoleInput{RoleArn: aws.String("arn:aws:iam::123456789012:role/deploy"), RoleSessionName: aws.String("test"), ExternalId: external}
		for _, p := range policy {
			in.Policy = &p
		}
		_, err := as.sts.AssumeRole(ctx, in)
		return err
	}
	nobody := l.user(t, `{"Effect":"Allow","Action":"ec2:*","Resource":"*"}`)
	put(`{"Effect":"Allow","Principal":{"AWS":"arn:aws:iam::123456789012:root"},"Action":"sts:AssumeRole"}`)
	refused(t, assume(l, nil), "")
	refused(t, assume(nobody, nil), "AccessDenied")
	refused(t, assume(l, nil, strings.Repeat(" ", 2048)+"{}"), "ValidationError")
	put(`{"Effect":"Allow","Principal":{"AWS":"arn:aws:iam::123456789012:user/dev"},"Action":"sts:AssumeRole","Condition":{"StringEquals":{"sts:ExternalId":"x-1"}}}`)
	refused(t, assume(nobody, aws.String("x-1")), "")
	refused(t, assume(nobody, aws.String("x-2")), "AccessDenied")
	err := assume(l, aws.String("x-1"))
	refused(t, err, "AccessDenied")
	if want := "User: arn:aws:iam::123456789012:user/lab is not authorized to perform: sts:AssumeRole on resource: arn:aws:iam::123456789012:role/deploy"; !strings.HasSuffix(err.Error(), want) {
		t.Error(err)
	}
	forbidden := l.user(t, `{"Effect":"Deny","Action":"sts:*","Resource":"*"}`)
	refused(t, assume(forbidden, aws.String("x-1")), "AccessDenied")
	if got := l.control(t, http.MethodPut, "/_lab/iam/roles/deploy", map[string]any{"trust": "{}"}, nil); got != http.StatusBadRequest {
		t.Errorf("a malformed trust policy: %d", got)
	}
}

// TestPassRole: who gives an instance a profile must be allowed to pass its role to EC2.
func TestPassRole(t *testing.T) {
	l := newLab(t)
	s := l.site(t)
	l.profile(t, "node", lookOnly)
	const ec2All = `{"Effect":"Allow","Action":"ec2:*","Resource":"*"}`
	pass := func(role, service string) string {
		return `{"Effect":"Allow","Action":"iam:PassRole","Resource":"arn:aws:iam::123456789012:role/` + role + `","Condition":{"StringEquals":{"iam:PassedToService":"` + service + `"}}}`
	}
	in := s.runInput()
	in.IamInstanceProfile = named("node")
	for _, tc := range []struct {
		name, statement string
		want            string
	}{
		{"nothing", ec2All, "UnauthorizedOperation"},
		{"another role", pass("admin", "ec2.amazonaws.com"), "UnauthorizedOperation"},
		{"another service", pass("node", "lambda.amazonaws.com"), "UnauthorizedOperation"},
		{"the role", pass("node", "ec2.amazonaws.com"), ""},
	} {
		dev := l.user(t, ec2All, tc.statement)
		out, err := dev.RunInstances(t.Context(), in)
		refused(t, err, tc.want)
		if tc.want != "" && !strings.Contains(err.Error(), "is not authorized to perform: iam:PassRole on resource: arn:aws:iam::123456789012:role/node because") {
			t.Errorf("%s: %v", tc.name, err)
		}
		if err == nil {
			id := *out.Instances[0].InstanceId
			l.await(t, id, types.InstanceStateNameRunning)
			l.clock.advance(time.Second)
			ids, _ := l.associated(t, id)
			plain := l.user(t, ec2All)
			_, err = plain.ReplaceIamInstanceProfileAssociation(t.Context(), &awsec2.ReplaceIamInstanceProfileAssociationInput{AssociationId: &ids[0], IamInstanceProfile: named("node")})
			refused(t, err, "UnauthorizedOperation")
			bound := l.user(t, `{"Effect":"Allow","Action":"ec2:Disassociate*","Resource":"arn:aws:ec2:*:*:instance/`+id+`"}`)
			_, err = bound.DisassociateIamInstanceProfile(t.Context(), &awsec2.DisassociateIamInstanceProfileInput{AssociationId: &ids[0]})
			refused(t, err, "")
		}
	}
}

// TestSpotRole: the account's first Spot instance needs EC2's service-linked role, which not every caller may make.
func TestSpotRole(t *testing.T) {
	l := newLab(t)
	s, ctx := l.site(t), t.Context()
	const run = `{"Effect":"Allow","Action":"ec2:*","Resource":"*"}`
	spot := func() *awsec2.RunInstancesInput {
		in := s.runInput()
		in.InstanceMarketOptions = &types.InstanceMarketOptionsRequest{MarketType: types.MarketTypeSpot}
		return in
	}
	dev := l.user(t, run)
	_, err := dev.RunInstances(ctx, spot())
	refused(t, err, "AuthFailure.ServiceLinkedRoleCreationNotPermitted")
	must[*awsec2.RunInstancesOutput](t)(dev.RunInstances(ctx, s.runInput()))
	dev = l.user(t, run, `{"Effect":"Allow","Action":"iam:CreateServiceLinkedRole","Resource":"arn:aws:iam::*:role/aws-service-role/spot.amazonaws.com/*","Condition":{"StringEquals":{"iam:AWSServiceName":"spot.amazonaws.com"}}}`)
	must[*awsec2.RunInstancesOutput](t)(dev.RunInstances(ctx, spot()))
	dev = l.user(t, run) // the role exists now
	must[*awsec2.RunInstancesOutput](t)(dev.RunInstances(ctx, spot()))
}

// TestNATGatewayPermissions checks what the two actions ask for, and on what.
func TestNATGatewayPermissions(t *testing.T) {
	l := newLab(t)
	s := l.site(t)
	ctx := t.Context()
	address := must[*awsec2.AllocateAddressOutput](t)(l.AllocateAddress(ctx, &awsec2.AllocateAddressInput{}))
	in := &awsec2.CreateNatGatewayInput{SubnetId: &s.subnet, AllocationId: address.AllocationId, TagSpecifications: tags(types.ResourceTypeNatgateway, "cluster", "demo")}
	const create, tagging = `{"Effect":"Allow","Action":"ec2:CreateNatGateway","Resource":%s}`, `{"Effect":"Allow","Action":"ec2:CreateTags","Resource":"arn:aws:ec2:*:*:natgateway/*","Condition":{"StringEquals":{"ec2:CreateAction":"CreateNatGateway"}}}`
	allowed := `["arn:aws:ec2:*:*:natgateway/*","arn:aws:ec2:*:*:subnet/` + s.subnet + `","arn:aws:ec2:*:*:elastic-ip/` + *in.AllocationId + `"]`
	for _, lacking := range [][]string{
		{fmt.Sprintf(create, allowed)}, // the tags
		{fmt.Sprintf(create, `["arn:aws:ec2:*:*:natgateway/*","arn:aws:ec2:*:*:elastic-ip/*"]`), tagging},
		{fmt.Sprintf(create, `["arn:aws:ec2:*:*:natgateway/*","arn:aws:ec2:*:*:subnet/*"]`), tagging},
		{fmt.Sprintf(create, `["arn:aws:ec2:*:*:elastic-ip/*","arn:aws:ec2:*:*:subnet/*"]`), tagging},
	} {
		_, err := l.user(t, lacking...).CreateNatGateway(ctx, in)
		refused(t, err, "UnauthorizedOperation")
	}
	id := *must[*awsec2.CreateNatGatewayOutput](t)(l.user(t, fmt.Sprintf(create, allowed), tagging).CreateNatGateway(ctx, in)).NatGateway.NatGatewayId
	const remove = `{"Effect":"Allow","Action":"ec2:DeleteNatGateway","Resource":"*","Condition":{"StringEquals":{"aws:ResourceTag/cluster":"%s"}}}`
	for _, tc := range []struct{ cluster, want string }{{"other", "UnauthorizedOperation"}, {"demo", ""}} {
		_, err := l.user(t, fmt.Sprintf(remove, tc.cluster)).DeleteNatGateway(ctx, &awsec2.DeleteNatGatewayInput{NatGatewayId: &id})
		refused(t, err, tc.want)
	}
}

// TestConnectEndpointPermissions checks what the two actions ask for, and on what.
func TestConnectEndpointPermissions(t *testing.T) {
	l := newLab(t)
	s := l.site(t)
	in := &awsec2.CreateInstanceConnectEndpointInput{SubnetId: &s.subnet, TagSpecifications: tags(types.ResourceTypeInstanceConnectEndpoint, "cluster", "demo")}
	const allow = `{"Effect":"Allow","Action":"%s","Resource":"*"}`
	all := []string{"ec2:CreateInstanceConnectEndpoint", "ec2:CreateNetworkInterface", "ec2:CreateTags", "iam:CreateServiceLinkedRole"}
	for lacking := range all {
		var statements []string
		for n, action := range all {
			if n != lacking {
				statements = append(statements, fmt.Sprintf(allow, action))
			}
		}
		_, err := l.user(t, statements...).CreateInstanceConnectEndpoint(t.Context(), in)
		refused(t, err, "UnauthorizedOperation")
	}
	var statements []string
	for _, action := range all {
		statements = append(statements, fmt.Sprintf(allow, action))
	}
	id := *must[*awsec2.CreateInstanceConnectEndpointOutput](t)(l.user(t, statements...).CreateInstanceConnectEndpoint(t.Context(), in)).InstanceConnectEndpoint.InstanceConnectEndpointId
	const remove = `{"Effect":"Allow","Action":"ec2:DeleteInstanceConnectEndpoint","Resource":"*","Condition":{"StringEquals":{"aws:ResourceTag/cluster":"%s"}}}`
	refused(t, l.user(t, fmt.Sprintf(remove, "other")).deleteConnectEndpoint(t, id), "UnauthorizedOperation")
	if err := l.user(t, fmt.Sprintf(remove, "demo")).deleteConnectEndpoint(t, id); err != nil {
		t.Error(err)
	}
}

// TestUserOnLoadBalancers: what a policy does not allow is refused, in the words of the service.
func TestUserOnLoadBalancers(t *testing.T) {
	l := newLab(t)
	s := l.site(t)
	ctx := t.Context()
	tags := func(key, value string) []elbtypes.Tag { return []elbtypes.Tag{{Key: &key, Value: &value}} }
	input := func(name string) *awselb.CreateLoadBalancerInput {
		return &awselb.CreateLoadBalancerInput{
			Name: &name, Type: elbtypes.LoadBalancerTypeEnumNetwork, Scheme: elbtypes.LoadBalancerSchemeEnumInternal, Subnets: []string{s.subnet}, Tags: tags("cluster", "demo"),
		}
	}
	arn := *must[*awselb.CreateLoadBalancerOutput](t)(l.elb.CreateLoadBalancer(ctx, input("api"))).LoadBalancers[0].LoadBalancerArn
	dev := l.user(t,
		`{"Effect":"Allow","Action":["elasticloadbalancing:Describe*"],"Resource":"*"}`,
		`{"Effect":"Allow","Action":"elasticloadbalancing:CreateLoadBalancer","Resource":"arn:aws:elasticloadbalancing:*:*:loadbalancer/net/dev*","Condition":{"StringEquals":{"aws:RequestTag/cluster":"demo"}}}`,
		`{"Effect":"Allow","Action":"elasticloadbalancing:AddTags","Resource":"*","Condition":{"StringEquals":{"elasticloadbalancing:CreateAction":"CreateLoadBalancer"}}}`,
		`{"Effect":"Allow","Action":"elasticloadbalancing:DeleteLoadBalancer","Resource":"*","Condition":{"StringEquals":{"aws:ResourceTag/cluster":"demo"}}}`,
	)
	must[*awselb.DescribeLoadBalancersOutput](t)(dev.elb.DescribeLoadBalancers(ctx, &awselb.DescribeLoadBalancersInput{LoadBalancerArns: []string{arn}}))
	_, err := dev.elb.CreateTargetGroup(ctx, &awselb.CreateTargetGroupInput{
		Name: aws.String("x"), Protocol: elbtypes.ProtocolEnumTcp, Port: aws.Int32(6443), VpcId: &s.vpc, TargetType: elbtypes.TargetTypeEnumInstance,
	})
	refused(t, err, "AccessDenied")
	if want := "User: arn:aws:iam::123456789012:user/dev is not authorized to perform: elasticloadbalancing:CreateTargetGroup on resource: arn:aws:elasticloadbalancing:us-east-1:123456789012:targetgroup/x/*"; !strings.Contains(err.Error(), want) {
		t.Error(err)
	}
	_, err = dev.elb.CreateLoadBalancer(ctx, input("other"))
	refused(t, err, "AccessDenied")
	untagged := input("dev")
	untagged.Tags = nil
	_, err = dev.elb.CreateLoadBalancer(ctx, untagged)
	refused(t, err, "AccessDenied")
	must[*awselb.CreateLoadBalancerOutput](t)(dev.elb.CreateLoadBalancer(ctx, input("dev")))
	_, err = dev.elb.AddTags(ctx, &awselb.AddTagsInput{ResourceArns: []string{arn}, Tags: tags("a", "b")})
	refused(t, err, "AccessDenied")
	must[*awselb.RemoveTagsOutput](t)(l.elb.RemoveTags(ctx, &awselb.RemoveTagsInput{ResourceArns: []string{arn}, TagKeys: []string{"cluster"}}))
	_, err = dev.elb.DeleteLoadBalancer(ctx, &awselb.DeleteLoadBalancerInput{LoadBalancerArn: &arn})
	refused(t, err, "AccessDenied")
	must[*awselb.AddTagsOutput](t)(l.elb.AddTags(ctx, &awselb.AddTagsInput{ResourceArns: []string{arn}, Tags: tags("cluster", "demo")}))
	must[*awselb.DeleteLoadBalancerOutput](t)(dev.elb.DeleteLoadBalancer(ctx, &awselb.DeleteLoadBalancerInput{LoadBalancerArn: &arn}))

	_, err = l.with("AKIAUNKNOWN", "x", "").elb.DescribeLoadBalancers(ctx, &awselb.DescribeLoadBalancersInput{})
	refused(t, err, "InvalidClientTokenId")
	_, err = l.with(testKey, "wrong", "").elb.DescribeLoadBalancers(ctx, &awselb.DescribeLoadBalancersInput{})
	refused(t, err, "SignatureDoesNotMatch")
}
