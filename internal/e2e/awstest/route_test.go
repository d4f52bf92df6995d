package awstest

import (
	"context"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"testing"

	sdk "github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/ec2"
	"github.com/aws/aws-sdk-go-v2/service/ec2/types"

	infraaws "github.com/k8s-from-scratch/terraform-provider-k8s/infra/aws"
	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/aws/machine"
	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/aws/network"
	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/finding"
	"github.com/k8s-from-scratch/terraform-provider-k8s/internal/lab/cloud/fault"
)

const pods = "10.200.0.0/24"

// office is an existing VPC with two subnets that a cluster has adopted. The first subnet has its
// own route table, the second the VPC's main one.
type office struct {
	*infraaws.Client
	account lab
	t       *testing.T
	ctx     context.Context
	wire    *wire
	connect machine.Connect
	network network.Network
	tables  []string // of the two subnets
}

func newOffice(t *testing.T) *office {
	t.Helper()
	a, ctx, w := newAccount(t), deadline(t), &wire{}
	o := &office{Client: a.client(w), account: a, t: t, ctx: ctx, wire: w}
	o.connect = a.newMachines(t, o.Client).on(w)
	vpc, err := o.EC2.CreateVpc(ctx, &ec2.CreateVpcInput{CidrBlock: sdk.String("10.240.0.0/16")})
	if err != nil {
		t.Fatal(err)
	}
	var subnets []string
	for _, cidr := range []string{"10.240.0.0/24", "10.240.1.0/24"} {
		s, err := o.EC2.CreateSubnet(ctx, &ec2.CreateSubnetInput{VpcId: vpc.Vpc.VpcId, CidrBlock: &cidr, AvailabilityZone: sdk.String("us-east-1a")})
		if err != nil {
			t.Fatal(err)
		}
		subnets = append(subnets, *s.Subnet.SubnetId)
	}
	own := o.newTable(*vpc.Vpc.VpcId)
	o.associate(own, subnets[0])
	o.network = ensured(ctx, t, o.Client, network.Spec{Cluster: "demo", VPCID: *vpc.Vpc.VpcId, SubnetIDs: subnets, AdminCIDRs: admins})
	for _, s := range o.network.Subnets {
		o.tables = append(o.tables, s.RouteTableID)
	}
	if len(o.tables) != 2 || o.tables[0] != own || o.tables[1] == own {
		t.Fatalf("tables %v, the first is %s", o.tables, own)
	}
	return o
}

func (o *office) newTable(vpc string) string {
	o.t.Helper()
	out, err := o.EC2.CreateRouteTable(o.ctx, &ec2.CreateRouteTableInput{VpcId: &vpc})
	if err != nil {
		o.t.Fatal(err)
	}
	return *out.RouteTable.RouteTableId
}

func (o *office) associate(table, subnet string) {
	o.t.Helper()
	if _, err := o.EC2.AssociateRouteTable(o.ctx, &ec2.AssociateRouteTableInput{RouteTableId: &table, SubnetId: &subnet}); err != nil {
		o.t.Fatal(err)
	}
}

// worker is a machine with pods in the first subnet.
func (o *office) worker() machine.Spec {
	spec := machineSpecs(o.network)[3]
	spec.NetworkSubnets = []string{o.network.Subnets[0].ID, o.network.Subnets[1].ID}
	return spec
}

// stranger launches an instance that does not belong to the cluster.
func (o *office) stranger() string {
	o.t.Helper()
	out, err := o.EC2.RunInstances(o.ctx, &ec2.RunInstancesInput{
		ImageId: sdk.String("ami-0123456789abcdef0"), MinCount: sdk.Int32(1), MaxCount: sdk.Int32(1), InstanceType: "t3.small", SubnetId: &o.network.Subnets[1].ID,
	})
	if err != nil {
		o.t.Fatal(err)
	}
	return *out.Instances[0].InstanceId
}

func (o *office) route(table, to, instance string) {
	o.t.Helper()
	if _, err := o.EC2.CreateRoute(o.ctx, &ec2.CreateRouteInput{RouteTableId: &table, DestinationCidrBlock: &to, InstanceId: &instance}); err != nil {
		o.t.Fatal(err)
	}
}

// leads returns the instance to which a table routes a network, "" without a route.
func (o *office) leads(table, to string) string {
	o.t.Helper()
	out, err := o.EC2.DescribeRouteTables(o.ctx, &ec2.DescribeRouteTablesInput{RouteTableIds: []string{table}})
	if err != nil {
		o.t.Fatal(err)
	}
	for _, r := range out.RouteTables[0].Routes {
		if sdk.ToString(r.DestinationCidrBlock) == to {
			return sdk.ToString(r.InstanceId)
		}
	}
	return ""
}

// TestPodRoutes checks that every route table of the network has the route to a machine's pods, and
// that one call reads all of them.
func TestPodRoutes(t *testing.T) {
	t.Parallel()
	o := newOffice(t)
	spec := o.worker()
	m := made(o.ctx, t, o.Client, o.connect, []machine.Spec{spec})[0]
	for _, table := range o.tables {
		if got := o.leads(table, pods); got != m.ID {
			t.Errorf("route in %s leads to %q, the machine is %s", table, got, m.ID)
		}
	}
	want := slices.Sorted(slices.Values(o.tables))
	if !slices.Equal(m.RouteTables, want) {
		t.Errorf("route tables %v, wanted %v", m.RouteTables, want)
	}
	spec.RoutedTables = m.RouteTables

	before := o.wire.count()
	asWanted(o.ctx, t, o.Client, m.ID, spec)
	if got := counts(o.wire.calls[before:]); got["DescribeRouteTables"] != 1 || len(got) != 3 {
		t.Errorf("a look took %v", got)
	}

	found, prefix, err := machine.Find(o.ctx, o.Client, m.ID, "")
	if err != nil || prefix.String() != pods || found.ID != m.ID {
		t.Errorf("found %s with pods %s, %v", found.ID, prefix, err)
	}

	spec.RemovePodCIDR, spec.PodCIDR = spec.PodCIDR, netip.MustParsePrefix("10.200.9.0/24")
	if _, err := machine.Converge(o.ctx, o.Client, m.ID, spec, nil); err != nil {
		t.Fatal(err)
	}
	for _, table := range o.tables {
		if was, is := o.leads(table, pods), o.leads(table, "10.200.9.0/24"); was != "" || is != m.ID {
			t.Errorf("in %s the old route leads to %q, the new one to %q", table, was, is)
		}
	}
}

// TestRoutesOfOthers checks that routes of others are kept, even if they conflict.
func TestRoutesOfOthers(t *testing.T) {
	t.Parallel()
	o := newOffice(t)
	spec, stranger := o.worker(), o.stranger()
	o.route(o.tables[1], pods, stranger)

	l, err := machine.Launch(o.ctx, o.Client, spec, random)
	if err != nil {
		t.Fatal(err)
	}
	m, err := l.Bring(o.ctx, o.connect)
	if err == nil || !strings.Contains(err.Error(), "route "+pods+" in "+o.tables[1]+": it leads to eni-") {
		t.Errorf("a machine whose pods are routed elsewhere: %v", err)
	}
	if _, err := machine.Converge(o.ctx, o.Client, m.ID, spec, nil); err == nil || !strings.Contains(err.Error(), "is not this machine's") {
		t.Errorf("the next attempt: %v", err)
	}
	// A stopped instance still owns its route.
	if _, err := o.EC2.StopInstances(o.ctx, &ec2.StopInstancesInput{InstanceIds: []string{stranger}}); err != nil {
		t.Fatal(err)
	}
	if _, err := machine.Converge(o.ctx, o.Client, m.ID, spec, nil); err == nil || !strings.Contains(err.Error(), "is not this machine's") {
		t.Errorf("with the other one stopped: %v", err)
	}
	spec.RoutedTables = o.tables[:1]
	if err := machine.Delete(o.ctx, o.Client, m.ID, spec); err != nil {
		t.Fatal(err)
	}
	if a, b := o.leads(o.tables[0], pods), o.leads(o.tables[1], pods); a != "" || b != stranger {
		t.Errorf("routes lead to %q and %q after the machine was deleted", a, b)
	}

	// A blackhole belongs to nobody and is replaced.
	if err := machine.Delete(o.ctx, o.Client, stranger, machine.Spec{}); err != nil {
		t.Fatal(err)
	}
	spec.RoutedTables = nil
	m = made(o.ctx, t, o.Client, o.connect, []machine.Spec{spec})[0]
	spec.RoutedTables = m.RouteTables

	// A route of the machine that was changed is drift, and is restored.
	another := o.stranger()
	if _, err := o.EC2.ReplaceRoute(o.ctx, &ec2.ReplaceRouteInput{RouteTableId: &o.tables[1], DestinationCidrBlock: sdk.String(pods), InstanceId: &another}); err != nil {
		t.Fatal(err)
	}
	_, drift, err := machine.Observe(o.ctx, o.Client, m.ID, spec)
	if got := finding.Words(drift); err != nil || !strings.HasPrefix(got, "route "+pods+" in "+o.tables[1]+": found eni-") {
		t.Errorf("drift %q, %v", got, err)
	}
	if _, err := machine.Converge(o.ctx, o.Client, m.ID, spec, nil); err != nil {
		t.Fatal(err)
	}
	asWanted(o.ctx, t, o.Client, m.ID, spec)
}

// TestRouteQuota checks the error about a full route table.
func TestRouteQuota(t *testing.T) {
	t.Parallel()
	o := newOffice(t)
	o.account.Fault(fault.Fault{Kind: fault.Fail, Action: "CreateRoute", Code: "RouteLimitExceeded", Message: "The maximum number of routes has been reached."})
	_, err := make1(o.ctx, o.Client, o.connect, o.worker())
	if err == nil || !strings.Contains(err.Error(), "route "+pods+" in rtb-") || !strings.Contains(infraaws.Advice(err), "500 routes") {
		t.Errorf("got %v; advice %q", err, infraaws.Advice(err))
	}
}

// TestLateAssociation checks that creating a network waits until EC2 reports the association of its
// route table, since machines find their tables by it.
func TestLateAssociation(t *testing.T) {
	t.Parallel()
	a, ctx := newAccount(t), deadline(t)
	c := a.client(&wire{})
	a.Fault(fault.Fault{Kind: fault.Eventual, Milliseconds: 400})
	n, err := network.Ensure(ctx, c, networkSpec())
	if err != nil {
		t.Fatal(err)
	}
	m, err := make1(ctx, c, a.newMachines(t, c).on(&wire{}), machineSpecs(n)[3])
	if err != nil || !slices.Equal(m.RouteTables, []string{n.Subnets[0].RouteTableID}) {
		t.Errorf("routes in %v, wanted %s: %v", m.RouteTables, n.Subnets[0].RouteTableID, err)
	}
}

// TestIgnoredRules checks that rules of others in the cluster's security groups can be kept.
func TestIgnoredRules(t *testing.T) {
	t.Parallel()
	a, ctx, w := newAccount(t), deadline(t), &wire{}
	c := a.client(w)
	spec := networkSpec()
	n := ensured(ctx, t, c, spec)
	worker, controller := n.SecurityGroups[infraaws.RoleWorker], n.SecurityGroups[infraaws.RoleController]
	add := func(port int32, description, tag string) {
		t.Helper()
		in := &ec2.AuthorizeSecurityGroupIngressInput{GroupId: &worker, IpPermissions: []types.IpPermission{{
			IpProtocol: sdk.String("tcp"), FromPort: &port, ToPort: &port, IpRanges: []types.IpRange{{CidrIp: sdk.String("0.0.0.0/0"), Description: &description}}}}}
		if tag != "" {
			in.TagSpecifications = []types.TagSpecification{{ResourceType: types.ResourceTypeSecurityGroupRule, Tags: []types.Tag{{Key: &tag, Value: sdk.String("x")}}}}
		}
		if _, err := c.EC2.AuthorizeSecurityGroupIngress(ctx, in); err != nil {
			t.Fatal(err)
		}
	}
	add(80, "elbv2.k8s.aws/targetGroupBinding=shared", "")
	add(443, "", "owner-team")
	add(23, "by hand", "other")
	// A protocol without ports, and the outgoing rule that EC2 gives every new group of a VPC with
	// IPv6 addresses.
	if _, err := c.EC2.AuthorizeSecurityGroupIngress(ctx, &ec2.AuthorizeSecurityGroupIngressInput{GroupId: &worker, IpPermissions: []types.IpPermission{{
		IpProtocol: sdk.String("4"), IpRanges: []types.IpRange{{CidrIp: sdk.String("10.240.0.0/24"), Description: sdk.String("elbv2.k8s.aws/ipip")}}}}}); err != nil {
		t.Fatal(err)
	}
	if _, err := c.EC2.AuthorizeSecurityGroupEgress(ctx, &ec2.AuthorizeSecurityGroupEgressInput{GroupId: &worker, IpPermissions: []types.IpPermission{{
		IpProtocol: sdk.String("-1"), Ipv6Ranges: []types.Ipv6Range{{CidrIpv6: sdk.String("::/0")}}}}}); err != nil {
		t.Fatal(err)
	}
	// Groups that refer to each other in outgoing rules as well, and a rule of others that is
	// identical to a wanted one.
	for from, to := range map[string]string{worker: controller, controller: worker} {
		if _, err := c.EC2.AuthorizeSecurityGroupEgress(ctx, &ec2.AuthorizeSecurityGroupEgressInput{GroupId: &from, IpPermissions: []types.IpPermission{{
			IpProtocol: sdk.String("-1"), UserIdGroupPairs: []types.UserIdGroupPair{{GroupId: &to, Description: sdk.String("elbv2.k8s.aws/x")}}}}}); err != nil {
			t.Fatal(err)
		}
	}
	ssh := n.SecurityGroups[network.GroupSSH]
	if _, err := c.EC2.UpdateSecurityGroupRuleDescriptionsIngress(ctx, &ec2.UpdateSecurityGroupRuleDescriptionsIngressInput{GroupId: &ssh, IpPermissions: []types.IpPermission{{
		IpProtocol: sdk.String("tcp"), FromPort: sdk.Int32(22), ToPort: sdk.Int32(22),
		IpRanges: []types.IpRange{{CidrIp: sdk.String("198.51.100.7/32"), Description: sdk.String("elbv2.k8s.aws/y")}}}}}); err != nil {
		t.Fatal(err)
	}
	spec.IgnoreRules = network.RuleFilter{DescriptionPrefixes: []string{"elbv2.k8s.aws/"}, TagKeys: []string{"owner-team"}}
	spec.Known = n
	_, found, err := network.Observe(ctx, c, spec)
	drift := finding.BySubject(found)
	if err != nil || len(drift) != 1 || drift["security group worker"] != "rule tcp 23 from 0.0.0.0/0: not wanted" {
		t.Errorf("drift %v, %v", drift, err)
	}
	if _, err := network.Ensure(ctx, c, spec); err != nil {
		t.Fatal(err)
	}
	unchanged(ctx, t, c, spec, n)
	all := spec
	all.IgnoreRules = network.RuleFilter{}
	_, found, err = network.Observe(ctx, c, all)
	drift = finding.BySubject(found)
	if got := fmt.Sprint(drift); err != nil || !strings.Contains(got, "tcp 80 ") || !strings.Contains(got, "tcp 443 ") || !strings.Contains(got, "rule 4 ") || strings.Contains(got, "::/0") || !strings.Contains(got, "outgoing all traffic to group") || strings.Contains(got, "tcp 22 ") {
		t.Errorf("without ignoring any: %v, %v", drift, err)
	}
	if err := network.Delete(ctx, c, spec); err != nil {
		t.Fatal(err)
	}
	a.Empty()
}
