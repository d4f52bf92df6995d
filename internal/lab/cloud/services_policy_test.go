package cloud_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/ec2"
	ec2types "github.com/aws/aws-sdk-go-v2/service/ec2/types"
	awselb "github.com/aws/aws-sdk-go-v2/service/elasticloadbalancingv2"
	elbtypes "github.com/aws/aws-sdk-go-v2/service/elasticloadbalancingv2/types"

	"github.com/k8s-from-scratch/terraform-provider-k8s/internal/lab/cloud/cloudtest"
)

// document returns a policy of examples/iam.
func document(t *testing.T, name string) string {
	t.Helper()
	return string(cloudtest.Must[[]byte](t)(os.ReadFile(filepath.Join("..", "..", "..", "examples", "iam", name+".json"))))
}

// TestServicePolicy: the role for Services reaches the load balancers of Services of its own cluster, and the workers'
// group. It does not reach the load balancers of the API and of other clusters, nor other groups.
func TestServicePolicy(t *testing.T) {
	const service, own = "kubernetes.io/cluster/demo", "k8s-from-scratch/cluster"
	l := cloudtest.New(t)
	s, ctx := l.NewSite(t), t.Context()
	role := l.UserWith(t, strings.ReplaceAll(document(t, "service-load-balancers"), "CLUSTER", "demo"))
	tags := func(keys []string) (out []elbtypes.Tag) {
		for _, key := range keys {
			out = append(out, elbtypes.Tag{Key: aws.String(key), Value: aws.String("owned")})
		}
		return out
	}
	balancer := func(by *cloudtest.Lab, name string, keys ...string) (string, error) {
		in := &awselb.CreateLoadBalancerInput{Name: &name, Type: elbtypes.LoadBalancerTypeEnumNetwork, Scheme: elbtypes.LoadBalancerSchemeEnumInternal, Subnets: []string{s.Subnet}}
		in.Tags = tags(keys)
		out, err := by.ELB.CreateLoadBalancer(ctx, in)
		if err != nil {
			return "", err
		}
		return *out.LoadBalancers[0].LoadBalancerArn, nil
	}
	for _, tt := range []struct {
		name       string
		keys       []string
		makes, end bool
	}{
		{"service", []string{service, "kubernetes.io/service-name"}, true, true},
		{"api", []string{service, own}, false, false},
		{"other", []string{"kubernetes.io/cluster/other"}, false, false},
		{"nobodys", nil, false, false},
	} {
		arn, err := balancer(role, tt.name, tt.keys...)
		if tt.makes != (err == nil) {
			t.Errorf("making %s: %v", tt.name, err)
		}
		if arn == "" {
			arn = cloudtest.Must[string](t)(balancer(l, tt.name, tt.keys...))
		}
		group := cloudtest.Must[*awselb.CreateTargetGroupOutput](t)(l.ELB.CreateTargetGroup(ctx, &awselb.CreateTargetGroupInput{
			Name: &tt.name, Protocol: elbtypes.ProtocolEnumTcp, Port: aws.Int32(30000), VpcId: &s.VPC, TargetType: elbtypes.TargetTypeEnumInstance, Tags: tags(tt.keys),
		})).TargetGroups[0].TargetGroupArn
		for what, try := range map[string]func() error{
			"listening on": func() error {
				_, err := role.ELB.CreateListener(ctx, &awselb.CreateListenerInput{LoadBalancerArn: &arn, Port: aws.Int32(81), Protocol: elbtypes.ProtocolEnumTcp, Tags: tags([]string{service}),
					DefaultActions: []elbtypes.Action{{Type: elbtypes.ActionTypeEnumForward, TargetGroupArn: group}}})
				return err
			},
			"checking the targets of": func() error {
				_, err := role.ELB.ModifyTargetGroup(ctx, &awselb.ModifyTargetGroupInput{TargetGroupArn: group, HealthyThresholdCount: aws.Int32(4)})
				return err
			},
		} {
			if err := try(); tt.end != (err == nil) {
				t.Errorf("%s %s: %v", what, tt.name, err)
			}
		}
		if _, err = role.ELB.DeleteLoadBalancer(ctx, &awselb.DeleteLoadBalancerInput{LoadBalancerArn: &arn}); tt.end != (err == nil) {
			t.Errorf("ending %s: %v", tt.name, err)
		}
	}
	for name, opens := range map[string]bool{"worker": true, "controller": false, "lb": false} {
		group := cloudtest.Must[*ec2.CreateSecurityGroupOutput](t)(l.CreateSecurityGroup(ctx, &ec2.CreateSecurityGroupInput{
			GroupName: &name, Description: &name, VpcId: &s.VPC, TagSpecifications: []ec2types.TagSpecification{{ResourceType: ec2types.ResourceTypeSecurityGroup,
				Tags: []ec2types.Tag{{Key: aws.String(service), Value: aws.String("owned")}, {Key: aws.String(own), Value: aws.String("demo")}, {Key: aws.String("k8s-from-scratch/name"), Value: &name}}}},
		}))
		_, err := role.AuthorizeSecurityGroupIngress(ctx, &ec2.AuthorizeSecurityGroupIngressInput{GroupId: group.GroupId, IpPermissions: []ec2types.IpPermission{{
			IpProtocol: aws.String("tcp"), FromPort: aws.Int32(30000), ToPort: aws.Int32(30000), IpRanges: []ec2types.IpRange{{CidrIp: aws.String("0.0.0.0/0")}}}}})
		if opens != (err == nil) {
			t.Errorf("opening the group %s: %v", name, err)
		}
	}
}
