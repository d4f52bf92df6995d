package elbv2_test

import (
	"strings"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	awsec2 "github.com/aws/aws-sdk-go-v2/service/ec2"
	"github.com/aws/aws-sdk-go-v2/service/ec2/types"
	awselb "github.com/aws/aws-sdk-go-v2/service/elasticloadbalancingv2"
	elbtypes "github.com/aws/aws-sdk-go-v2/service/elasticloadbalancingv2/types"

	"github.com/k8s-from-scratch/terraform-provider-k8s/internal/lab/cloud/cloudtest"
)

// balanced is a site with a load balancer of two zones.
type balanced struct {
	*cloudtest.Lab
	cloudtest.Site
	subnetB     string
	arn         string
	targetGroup string
}

func (b *balanced) subnets() []string { return []string{b.Subnet, b.subnetB} }

func newSubnet(t *testing.T, l *cloudtest.Lab, vpc, cidr, zone string) string {
	t.Helper()
	out := cloudtest.Must[*awsec2.CreateSubnetOutput](t)(l.CreateSubnet(t.Context(), &awsec2.CreateSubnetInput{VpcId: &vpc, CidrBlock: &cidr, AvailabilityZone: &zone}))
	return *out.Subnet.SubnetId
}

func elbTags(pairs ...string) []elbtypes.Tag {
	var out []elbtypes.Tag
	for i := 0; i < len(pairs); i += 2 {
		out = append(out, elbtypes.Tag{Key: &pairs[i], Value: &pairs[i+1]})
	}
	return out
}

func (b *balanced) balancerInput(name string) *awselb.CreateLoadBalancerInput {
	return &awselb.CreateLoadBalancerInput{
		Name: &name, Type: elbtypes.LoadBalancerTypeEnumNetwork, Scheme: elbtypes.LoadBalancerSchemeEnumInternal, Subnets: b.subnets(),
		Tags: elbTags("cluster", "demo"),
	}
}

func (b *balanced) groupInput(name string) *awselb.CreateTargetGroupInput {
	return &awselb.CreateTargetGroupInput{
		Name: &name, Protocol: elbtypes.ProtocolEnumTcp, Port: aws.Int32(6443), VpcId: &b.VPC, TargetType: elbtypes.TargetTypeEnumInstance,
		HealthCheckProtocol: elbtypes.ProtocolEnumTcp, HealthCheckIntervalSeconds: aws.Int32(5), HealthCheckTimeoutSeconds: aws.Int32(5),
		// With two, a slow first check and the second could look like one.
		HealthyThresholdCount: aws.Int32(3), UnhealthyThresholdCount: aws.Int32(2),
	}
}

func (b *balanced) newGroup(t *testing.T, name string) string {
	t.Helper()
	out := cloudtest.Must[*awselb.CreateTargetGroupOutput](t)(b.ELB.CreateTargetGroup(t.Context(), b.groupInput(name)))
	return *out.TargetGroups[0].TargetGroupArn
}

func forward(group string) []elbtypes.Action {
	return []elbtypes.Action{{Type: elbtypes.ActionTypeEnumForward, TargetGroupArn: &group}}
}

func (b *balanced) listen(t *testing.T, arn, group string, port int32) string {
	t.Helper()
	out := cloudtest.Must[*awselb.CreateListenerOutput](t)(b.ELB.CreateListener(t.Context(), &awselb.CreateListenerInput{
		LoadBalancerArn: &arn, Port: &port, Protocol: elbtypes.ProtocolEnumTcp, DefaultActions: forward(group),
	}))
	return *out.Listeners[0].ListenerArn
}

// newBalanced makes an internal load balancer and a target group, without a listener.
func newBalanced(t *testing.T, change ...func(*cloudtest.Lab)) *balanced {
	t.Helper()
	l := cloudtest.New(t, change...)
	b := &balanced{Lab: l, Site: l.NewSite(t)}
	b.subnetB = newSubnet(t, l, b.VPC, "10.240.1.0/24", "us-east-1b")
	out := cloudtest.Must[*awselb.CreateLoadBalancerOutput](t)(l.ELB.CreateLoadBalancer(t.Context(), b.balancerInput("api")))
	b.arn = *out.LoadBalancers[0].LoadBalancerArn
	b.targetGroup = b.newGroup(t, "api")
	return b
}

func (b *balanced) describe(t *testing.T) elbtypes.LoadBalancer {
	t.Helper()
	out := cloudtest.Must[*awselb.DescribeLoadBalancersOutput](t)(b.ELB.DescribeLoadBalancers(t.Context(), &awselb.DescribeLoadBalancersInput{LoadBalancerArns: []string{b.arn}}))
	return out.LoadBalancers[0]
}

func (b *balanced) interfaces(t *testing.T) []types.NetworkInterface {
	t.Helper()
	out := cloudtest.Must[*awsec2.DescribeNetworkInterfacesOutput](t)(b.DescribeNetworkInterfaces(t.Context(), &awsec2.DescribeNetworkInterfacesInput{
		Filters: []types.Filter{cloudtest.Filter("interface-type", "network_load_balancer")},
	}))
	return out.NetworkInterfaces
}

func TestLoadBalancer(t *testing.T) {
	b := newBalanced(t)
	ctx := t.Context()
	got := b.describe(t)
	if got.State.Code != elbtypes.LoadBalancerStateEnumProvisioning || len(got.AvailabilityZones) != 2 || *got.AvailabilityZones[1].SubnetId != b.subnetB ||
		*got.VpcId != b.VPC || got.Type != elbtypes.LoadBalancerTypeEnumNetwork || len(got.SecurityGroups) != 0 {
		t.Errorf("%+v", got)
	}
	if name := *got.DNSName; !strings.HasPrefix(name, "api-") || !strings.HasSuffix(name, ".elb.us-east-1.amazonaws.com") {
		t.Errorf("name %s", name)
	}
	b.Clock.Advance(3 * time.Second)
	if got := b.describe(t); got.State.Code != elbtypes.LoadBalancerStateEnumActive {
		t.Errorf("state %s", got.State.Code)
	}
	nodes := b.interfaces(t)
	if len(nodes) != 2 {
		t.Fatalf("%d interfaces", len(nodes))
	}
	for _, n := range nodes {
		if want := "ELB " + b.arn[strings.Index(b.arn, "net/"):]; *n.Description != want || !*n.RequesterManaged || n.Status != types.NetworkInterfaceStatusInUse {
			t.Errorf("%s, want %s: %+v", *n.Description, want, n)
		}
		_, err := b.DeleteNetworkInterface(ctx, &awsec2.DeleteNetworkInterfaceInput{NetworkInterfaceId: n.NetworkInterfaceId})
		cloudtest.Refused(t, err, "InvalidNetworkInterface.InUse")
		_, err = b.ModifyNetworkInterfaceAttribute(ctx, &awsec2.ModifyNetworkInterfaceAttributeInput{NetworkInterfaceId: n.NetworkInterfaceId, Groups: []string{b.Group}})
		cloudtest.Refused(t, err, "AuthFailure")
	}

	// The same again gives it again; another with its name does not.
	again := cloudtest.Must[*awselb.CreateLoadBalancerOutput](t)(b.ELB.CreateLoadBalancer(ctx, b.balancerInput("api")))
	if *again.LoadBalancers[0].LoadBalancerArn != b.arn || len(b.interfaces(t)) != 2 {
		t.Errorf("again: %s", *again.LoadBalancers[0].LoadBalancerArn)
	}
	for _, change := range []func(*awselb.CreateLoadBalancerInput){
		func(in *awselb.CreateLoadBalancerInput) { in.Subnets = in.Subnets[:1] },
		func(in *awselb.CreateLoadBalancerInput) { in.Scheme = elbtypes.LoadBalancerSchemeEnumInternetFacing },
		func(in *awselb.CreateLoadBalancerInput) { in.SecurityGroups = []string{b.Group} },
		func(in *awselb.CreateLoadBalancerInput) { in.Tags = nil },
	} {
		in := b.balancerInput("api")
		change(in)
		_, err := b.ELB.CreateLoadBalancer(ctx, in)
		cloudtest.Refused(t, err, "DuplicateLoadBalancerName")
	}

	// Its interfaces hold the subnet for a while.
	listener := b.listen(t, b.arn, b.targetGroup, 6443)
	cloudtest.Must[*awselb.DeleteLoadBalancerOutput](t)(b.ELB.DeleteLoadBalancer(ctx, &awselb.DeleteLoadBalancerInput{LoadBalancerArn: &b.arn}))
	cloudtest.Must[*awselb.DeleteLoadBalancerOutput](t)(b.ELB.DeleteLoadBalancer(ctx, &awselb.DeleteLoadBalancerInput{LoadBalancerArn: &b.arn}))
	_, err := b.ELB.DescribeLoadBalancers(ctx, &awselb.DescribeLoadBalancersInput{LoadBalancerArns: []string{b.arn}})
	cloudtest.Refused(t, err, "LoadBalancerNotFound")
	_, err = b.ELB.DescribeLoadBalancers(ctx, &awselb.DescribeLoadBalancersInput{Names: []string{"api"}})
	cloudtest.Refused(t, err, "LoadBalancerNotFound")
	_, err = b.ELB.DeleteListener(ctx, &awselb.DeleteListenerInput{ListenerArn: &listener})
	cloudtest.Refused(t, err, "ListenerNotFound")
	_, err = b.DeleteSubnet(ctx, &awsec2.DeleteSubnetInput{SubnetId: &b.subnetB})
	cloudtest.Refused(t, err, "DependencyViolation")
	b.Clock.Advance(5 * time.Second)
	cloudtest.Eventually(t, "the interfaces are gone", func() bool { return len(b.interfaces(t)) == 0 })
	cloudtest.Must[*awsec2.DeleteSubnetOutput](t)(b.DeleteSubnet(ctx, &awsec2.DeleteSubnetInput{SubnetId: &b.subnetB}))
	cloudtest.Must[*awselb.DeleteTargetGroupOutput](t)(b.ELB.DeleteTargetGroup(ctx, &awselb.DeleteTargetGroupInput{TargetGroupArn: &b.targetGroup}))
	if o := b.Account.Overview(); len(o.LoadBalancers)+len(o.TargetGroups) != 0 {
		t.Errorf("left: %+v %+v", o.LoadBalancers, o.TargetGroups)
	}
}

func TestLoadBalancerRefusals(t *testing.T) {
	b := newBalanced(t)
	ctx := t.Context()
	second := newSubnet(t, b.Lab, b.VPC, "10.240.2.0/24", "us-east-1a")
	eip := cloudtest.Must[*awsec2.AllocateAddressOutput](t)(b.AllocateAddress(ctx, &awsec2.AllocateAddressInput{}))
	mapped := func(subnet, allocation string) []elbtypes.SubnetMapping {
		return []elbtypes.SubnetMapping{{SubnetId: &subnet, AllocationId: &allocation}}
	}
	for name, tt := range map[string]struct {
		change func(*awselb.CreateLoadBalancerInput)
		code   string
	}{
		"long":         {func(in *awselb.CreateLoadBalancerInput) { in.Name = aws.String(strings.Repeat("a", 33)) }, "ValidationError"},
		"internal-":    {func(in *awselb.CreateLoadBalancerInput) { in.Name = aws.String("internal-x") }, "ValidationError"},
		"hyphen":       {func(in *awselb.CreateLoadBalancerInput) { in.Name = aws.String("x-") }, "ValidationError"},
		"dot":          {func(in *awselb.CreateLoadBalancerInput) { in.Name = aws.String("x.y") }, "ValidationError"},
		"no subnet":    {func(in *awselb.CreateLoadBalancerInput) { in.Subnets = nil }, "ValidationError"},
		"subnet":       {func(in *awselb.CreateLoadBalancerInput) { in.Subnets = []string{"subnet-00000000000000001"} }, "SubnetNotFound"},
		"one zone":     {func(in *awselb.CreateLoadBalancerInput) { in.Subnets = []string{b.Subnet, second} }, "InvalidConfigurationRequest"},
		"group":        {func(in *awselb.CreateLoadBalancerInput) { in.SecurityGroups = []string{"sg-00000000000000001"} }, "InvalidSecurityGroup"},
		"application":  {func(in *awselb.CreateLoadBalancerInput) { in.Type = elbtypes.LoadBalancerTypeEnumApplication }, "InvalidConfigurationRequest"},
		"twice tagged": {func(in *awselb.CreateLoadBalancerInput) { in.Tags = elbTags("a", "1", "a", "2") }, "DuplicateTagKeys"},
		"EIP, internal": {func(in *awselb.CreateLoadBalancerInput) {
			in.Subnets, in.SubnetMappings = nil, mapped(b.Subnet, *eip.AllocationId)
		}, "InvalidConfigurationRequest"},
		"no EIP": {func(in *awselb.CreateLoadBalancerInput) {
			in.Scheme = elbtypes.LoadBalancerSchemeEnumInternetFacing
			in.Subnets, in.SubnetMappings = nil, mapped(b.Subnet, "eipalloc-00000000000000001")
		}, "AllocationIdNotFound"},
	} {
		in := b.balancerInput("other")
		tt.change(in)
		if _, err := b.ELB.CreateLoadBalancer(ctx, in); cloudtest.Code(err) != tt.code {
			t.Errorf("%s: %v, want %s", name, err, tt.code)
		}
	}
	if n := len(b.interfaces(t)); n != 2 {
		t.Errorf("%d interfaces after refusals", n)
	}
	_, err := b.ELB.ModifyLoadBalancerAttributes(ctx, &awselb.ModifyLoadBalancerAttributesInput{LoadBalancerArn: &b.arn, Attributes: []elbtypes.LoadBalancerAttribute{
		{Key: aws.String("idle_timeout.timeout_seconds"), Value: aws.String("60")},
	}})
	cloudtest.Refused(t, err, "InvalidConfigurationRequest")
	cloudtest.Must[*awselb.ModifyLoadBalancerAttributesOutput](t)(b.ELB.ModifyLoadBalancerAttributes(ctx, &awselb.ModifyLoadBalancerAttributesInput{
		LoadBalancerArn: &b.arn, Attributes: []elbtypes.LoadBalancerAttribute{{Key: aws.String("deletion_protection.enabled"), Value: aws.String("true")}},
	}))
	_, err = b.ELB.DeleteLoadBalancer(ctx, &awselb.DeleteLoadBalancerInput{LoadBalancerArn: &b.arn})
	cloudtest.Refused(t, err, "OperationNotPermitted")
	_, err = b.ELB.SetSecurityGroups(ctx, &awselb.SetSecurityGroupsInput{LoadBalancerArn: &b.arn, SecurityGroups: []string{b.Group}})
	cloudtest.Refused(t, err, "InvalidConfigurationRequest")
	_, err = b.ELB.DescribeTargetGroups(ctx, &awselb.DescribeTargetGroupsInput{Names: []string{"none"}})
	cloudtest.Refused(t, err, "TargetGroupNotFound")
	_, err = b.ELB.DescribeLoadBalancers(ctx, &awselb.DescribeLoadBalancersInput{LoadBalancerArns: []string{"arn:aws:x"}})
	cloudtest.Refused(t, err, "ValidationError")
}

// TestLoadBalancerAddresses: Elastic IPs are used while the interfaces exist.
func TestLoadBalancerAddresses(t *testing.T) {
	b := newBalanced(t)
	ctx := t.Context()
	eip := cloudtest.Must[*awsec2.AllocateAddressOutput](t)(b.AllocateAddress(ctx, &awsec2.AllocateAddressInput{}))
	in := &awselb.CreateLoadBalancerInput{
		Name: aws.String("public"), Type: elbtypes.LoadBalancerTypeEnumNetwork, SecurityGroups: []string{b.Group},
		SubnetMappings: []elbtypes.SubnetMapping{{SubnetId: &b.Subnet, AllocationId: eip.AllocationId}},
	}
	made := cloudtest.Must[*awselb.CreateLoadBalancerOutput](t)(b.ELB.CreateLoadBalancer(ctx, in)).LoadBalancers[0]
	if made.Scheme != elbtypes.LoadBalancerSchemeEnumInternetFacing || *made.AvailabilityZones[0].LoadBalancerAddresses[0].IpAddress != *eip.PublicIp {
		t.Errorf("%+v", made)
	}
	address := cloudtest.Must[*awsec2.DescribeAddressesOutput](t)(b.DescribeAddresses(ctx, &awsec2.DescribeAddressesInput{AllocationIds: []string{*eip.AllocationId}})).Addresses[0]
	if aws.ToString(address.NetworkInterfaceId) == "" {
		t.Errorf("%+v", address)
	}
	_, err := b.ReleaseAddress(ctx, &awsec2.ReleaseAddressInput{AllocationId: eip.AllocationId})
	cloudtest.Refused(t, err, "InvalidIPAddress.InUse")
	_, err = b.DisassociateAddress(ctx, &awsec2.DisassociateAddressInput{AssociationId: address.AssociationId})
	cloudtest.Refused(t, err, "AuthFailure")
	in.Name, in.SubnetMappings[0].SubnetId = aws.String("other"), &b.subnetB
	_, err = b.ELB.CreateLoadBalancer(ctx, in)
	cloudtest.Refused(t, err, "ResourceInUse")

	_, err = b.ELB.SetSecurityGroups(ctx, &awselb.SetSecurityGroupsInput{LoadBalancerArn: made.LoadBalancerArn, SecurityGroups: []string{"sg-00000000000000001"}})
	cloudtest.Refused(t, err, "InvalidSecurityGroup")
	set := cloudtest.Must[*awselb.SetSubnetsOutput](t)(b.ELB.SetSubnets(ctx, &awselb.SetSubnetsInput{LoadBalancerArn: made.LoadBalancerArn, Subnets: b.subnets()}))
	if len(set.AvailabilityZones) != 2 || *set.AvailabilityZones[0].LoadBalancerAddresses[0].IpAddress != *eip.PublicIp {
		t.Errorf("%+v", set)
	}
	b.Clock.Advance(3 * time.Second)
	if addrs, ok := b.Account.Instances().BalancerAddresses(*made.DNSName); !ok || len(addrs) != 2 || addrs[0].String() != *eip.PublicIp {
		t.Errorf("%v %v", addrs, ok)
	}
	cloudtest.Must[*awselb.DeleteLoadBalancerOutput](t)(b.ELB.DeleteLoadBalancer(ctx, &awselb.DeleteLoadBalancerInput{LoadBalancerArn: made.LoadBalancerArn}))
	_, err = b.ReleaseAddress(ctx, &awsec2.ReleaseAddressInput{AllocationId: eip.AllocationId})
	cloudtest.Refused(t, err, "InvalidIPAddress.InUse")
	_, err = b.DeleteSecurityGroup(ctx, &awsec2.DeleteSecurityGroupInput{GroupId: &b.Group})
	cloudtest.Refused(t, err, "DependencyViolation")
	b.Clock.Advance(5 * time.Second)
	cloudtest.Eventually(t, "the address is free", func() bool {
		_, err := b.ReleaseAddress(ctx, &awsec2.ReleaseAddressInput{AllocationId: eip.AllocationId})
		return err == nil
	})
}
