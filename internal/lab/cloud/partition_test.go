package cloud_test

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/aws/aws-sdk-go-v2/aws"
	awsec2 "github.com/aws/aws-sdk-go-v2/service/ec2"
	"github.com/aws/aws-sdk-go-v2/service/ec2/types"
	awselb "github.com/aws/aws-sdk-go-v2/service/elasticloadbalancingv2"
	elbtypes "github.com/aws/aws-sdk-go-v2/service/elasticloadbalancingv2/types"
	awsssm "github.com/aws/aws-sdk-go-v2/service/ssm"
	awssts "github.com/aws/aws-sdk-go-v2/service/sts"

	"github.com/k8s-from-scratch/terraform-provider-k8s/internal/lab/cloud/cloudtest"
	"github.com/k8s-from-scratch/terraform-provider-k8s/internal/lab/cloud/cloudtest/isolation"
	"github.com/k8s-from-scratch/terraform-provider-k8s/internal/lab/cloud/ec2"
	"github.com/k8s-from-scratch/terraform-provider-k8s/internal/lab/cloud/iam"
)

// partitioned is an account in a region of another partition, and the ARNs' start there.
type partitioned struct {
	*cloudtest.Lab
	arn string
}

// inPartitions runs a test in a region of each partition other than aws.
func inPartitions(t *testing.T, test func(t *testing.T, p partitioned)) {
	for region, arn := range map[string]string{"cn-north-1": "arn:aws-cn:", "us-gov-west-1": "arn:aws-us-gov:"} {
		t.Run(region, func(t *testing.T) {
			test(t, partitioned{cloudtest.New(t, func(l *cloudtest.Lab) { l.Region = region }), arn})
		})
	}
}

// user returns the lab as a user sees it, who has policies that are written for the partition aws: rewritten for this
// one as the guide IAM says, or as they are.
func (p partitioned) user(t *testing.T, rewritten bool, tags map[string]string, documents ...string) *cloudtest.Lab {
	t.Helper()
	for n := range documents {
		if rewritten {
			documents[n] = strings.ReplaceAll(documents[n], "arn:aws:", p.arn)
			if p.Region == "cn-north-1" {
				documents[n] = strings.ReplaceAll(documents[n], `"ec2.amazonaws.com"`, `"ec2.amazonaws.com.cn"`)
			}
		}
	}
	u, err := p.Account.Identities().PutUser("dev", iam.Entity{Policies: documents, Tags: tags})
	if err != nil || !strings.HasPrefix(u.ARN, p.arn) {
		t.Fatal(u.ARN, err)
	}
	return p.With(u.AccessKeyID, u.SecretAccessKey, "")
}

// TestPoliciesInPartitions: the policies of examples/iam, rewritten for another partition, allow there what they allow
// in the partition aws, and no more. As they are they allow nothing on a resource.
func TestPoliciesInPartitions(t *testing.T) {
	var documents []string
	for _, name := range []string{"everyday.json", "load-balancers.json"} {
		raw, err := os.ReadFile(filepath.Join("..", "..", "..", "examples", "iam", name))
		if err != nil {
			t.Fatal(err)
		}
		documents = append(documents, string(raw))
	}
	inPartitions(t, func(t *testing.T, p partitioned) {
		ctx, s := t.Context(), p.NewSite(t)
		p.Profile(t, "k8s-demo", cloudtest.LookOnly)
		p.Profile(t, "admin", cloudtest.Everything)
		tags := map[string]string{"k8s-cluster": "demo", "k8s-subnet-1": s.Subnet, "k8s-subnet-2": s.Subnet, "k8s-subnet-3": s.Subnet}
		run := func(l *cloudtest.Lab, cluster string, change func(*awsec2.RunInstancesInput)) error {
			in := s.RunInput()
			for _, kind := range []types.ResourceType{types.ResourceTypeInstance, types.ResourceTypeVolume, types.ResourceTypeNetworkInterface} {
				if cluster != "" {
					in.TagSpecifications = append(in.TagSpecifications, cloudtest.Tags(kind, isolation.ClusterTag, cluster)...)
				}
			}
			change(in)
			_, err := l.RunInstances(ctx, in)
			return err
		}
		balancer := func(l *cloudtest.Lab, name string) error {
			_, err := l.ELB.CreateLoadBalancer(ctx, &awselb.CreateLoadBalancerInput{Name: &name, Type: elbtypes.LoadBalancerTypeEnumNetwork, Scheme: elbtypes.LoadBalancerSchemeEnumInternal,
				Subnets: []string{s.Subnet}, Tags: []elbtypes.Tag{{Key: aws.String(isolation.ClusterTag), Value: aws.String("demo")}}})
			return err
		}
		get := func(l *cloudtest.Lab, name string) error {
			_, err := l.SSM.GetParameter(ctx, &awsssm.GetParameterInput{Name: &name})
			return err
		}
		put := func(l *cloudtest.Lab, name string) error {
			_, err := l.SSM.PutParameter(ctx, isolation.PutParameter(name, "x"))
			return err
		}
		plain := func(*awsec2.RunInstancesInput) {}
		profile := func(name string) func(*awsec2.RunInstancesInput) {
			return func(in *awsec2.RunInstancesInput) { in.IamInstanceProfile = cloudtest.ProfileNamed(name) }
		}
		calls := []struct {
			name    string
			allowed bool
			call    func(l *cloudtest.Lab) error
		}{
			{"a machine", true, func(l *cloudtest.Lab) error { return run(l, "demo", plain) }},
			{"a machine without tags", false, func(l *cloudtest.Lab) error { return run(l, "", plain) }},
			{"a profile", true, func(l *cloudtest.Lab) error { return run(l, "demo", profile("k8s-demo")) }},
			{"another profile", false, func(l *cloudtest.Lab) error { return run(l, "demo", profile("admin")) }},
			{"a Spot instance", true, func(l *cloudtest.Lab) error {
				return run(l, "demo", func(in *awsec2.RunInstancesInput) {
					in.InstanceMarketOptions = &types.InstanceMarketOptionsRequest{MarketType: types.MarketTypeSpot}
				})
			}},
			{"an Instance Connect endpoint", true, func(l *cloudtest.Lab) error {
				_, err := l.CreateInstanceConnectEndpoint(ctx, &awsec2.CreateInstanceConnectEndpointInput{SubnetId: &s.Subnet, TagSpecifications: cloudtest.Tags(types.ResourceTypeInstanceConnectEndpoint, isolation.ClusterTag, "demo")})
				return err
			}},
			{"a subnet", true, func(l *cloudtest.Lab) error {
				_, err := l.CreateSubnet(ctx, &awsec2.CreateSubnetInput{VpcId: &s.VPC, CidrBlock: aws.String("10.240.1.0/24"), TagSpecifications: cloudtest.Tags(types.ResourceTypeSubnet, isolation.ClusterTag, "demo")})
				return err
			}},
			{"somebody's subnet", false, func(l *cloudtest.Lab) error {
				_, err := l.DeleteSubnet(ctx, &awsec2.DeleteSubnetInput{SubnetId: &s.Subnet})
				return err
			}},
			{"a key", true, func(l *cloudtest.Lab) error { return put(l, "/k8s/demo/key") }},
			{"somebody's key", false, func(l *cloudtest.Lab) error { return put(l, "/other/key") }},
			{"the image's parameter", p.Region != "cn-north-1", func(l *cloudtest.Lab) error { return get(l, ec2.Image{Release: "13"}.PublicParameter()) }},
			{"a load balancer", true, func(l *cloudtest.Lab) error { return balancer(l, "kfs-demo-1") }},
			{"somebody's load balancer", false, func(l *cloudtest.Lab) error { return balancer(l, "kfs-bob-1") }},
		}
		for _, rewritten := range []bool{false, true} {
			l := p.user(t, rewritten, tags, slices.Clone(documents)...)
			for _, c := range calls {
				err := c.call(l)
				switch allowed := rewritten && c.allowed; {
				case allowed && err != nil, !allowed && !refused(err) && cloudtest.Code(err) != "AuthFailure.ServiceLinkedRoleCreationNotPermitted":
					t.Errorf("rewritten %t: %s: %v", rewritten, c.name, err)
				case err != nil && strings.Contains(err.Error(), "arn:aws:"):
					t.Errorf("%s: %v has the ARN of another partition", c.name, err)
				}
			}
		}
		// Condition keys hold ARNs of the partition, too.
		dev := p.user(t, true, nil, `{"Version":"2012-10-17","Statement":[{"Effect":"Allow","Action":"ec2:DeleteSecurityGroup","Resource":"*","Condition":{"StringEquals":{"ec2:Vpc":"arn:aws:ec2:`+p.Region+`:123456789012:vpc/`+s.VPC+`"}}}]}`)
		group := p.NewSecurityGroup(t, s.VPC, "other")
		_, err := dev.DeleteSecurityGroup(ctx, &awsec2.DeleteSecurityGroupInput{GroupId: &group})
		cloudtest.Refused(t, err, "")
	})
}

// TestSessionsInPartitions: the sessions of roles and of federated users, and what trusts them, have ARNs of the
// partition.
func TestSessionsInPartitions(t *testing.T) {
	inPartitions(t, func(t *testing.T, p partitioned) {
		ctx, account := t.Context(), "iam::123456789012:"
		r, err := p.Account.Identities().PutRole("deploy", iam.Entity{Policies: []string{cloudtest.LookOnly}}, "") // trusts the account
		if err != nil || r.ARN != p.arn+account+"role/deploy" {
			t.Fatal(r.ARN, err)
		}
		const assuming = `{"Version":"2012-10-17","Statement":[{"Effect":"Allow","Action":["sts:AssumeRole","sts:GetFederationToken"],"Resource":["arn:aws:iam::123456789012:role/deploy","arn:aws:sts::123456789012:federated-user/ada"]}]}`
		assume := func(l *cloudtest.Lab, arn string) (*awssts.AssumeRoleOutput, error) {
			return l.STS.AssumeRole(ctx, &awssts.AssumeRoleInput{RoleArn: &arn, RoleSessionName: aws.String("test")})
		}
		_, err = assume(p.user(t, false, nil, assuming), r.ARN)
		cloudtest.Refused(t, err, "AccessDenied")
		dev := p.user(t, true, nil, assuming)
		_, err = assume(dev, "arn:aws:"+account+"role/deploy")
		cloudtest.Refused(t, err, "AccessDenied")
		out := cloudtest.Must[*awssts.AssumeRoleOutput](t)(assume(dev, r.ARN))
		if got, want := *out.AssumedRoleUser.Arn, p.arn+"sts::123456789012:assumed-role/deploy/test"; got != want {
			t.Errorf("the session is %s, want %s", got, want)
		}
		c := out.Credentials
		cloudtest.Must[*awsec2.DescribeVpcsOutput](t)(p.With(*c.AccessKeyId, *c.SecretAccessKey, *c.SessionToken).DescribeVpcs(ctx, &awsec2.DescribeVpcsInput{}))
		federated := cloudtest.Must[*awssts.GetFederationTokenOutput](t)(dev.STS.GetFederationToken(ctx, &awssts.GetFederationTokenInput{Name: aws.String("ada")}))
		if got, want := *federated.FederatedUser.Arn, p.arn+"sts::123456789012:federated-user/ada"; got != want {
			t.Errorf("the federated user is %s, want %s", got, want)
		}
		site := p.NewSite(t)
		in := site.RunInput()
		in.IamInstanceProfile = cloudtest.ProfileNamed(p.Profile(t, "node", cloudtest.LookOnly).Name)
		id := *p.Run(t, in).InstanceId
		role, err := p.Account.Instances().Role(inside(t, p.Lab, site, id))
		if err != nil {
			t.Fatal(err)
		}
		who := cloudtest.Must[*awssts.GetCallerIdentityOutput](t)(as(t, p.Lab, role).STS.GetCallerIdentity(ctx, &awssts.GetCallerIdentityInput{}))
		if got, want := *who.Arn, p.arn+"sts::123456789012:assumed-role/node/"+id; got != want {
			t.Errorf("the instance is %s, want %s", got, want)
		}
	})
}
