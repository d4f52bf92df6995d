package providertest

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	sdk "github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/ec2"
	"github.com/aws/aws-sdk-go-v2/service/ec2/types"
	elb "github.com/aws/aws-sdk-go-v2/service/elasticloadbalancingv2"
	elbtypes "github.com/aws/aws-sdk-go-v2/service/elasticloadbalancingv2/types"
)

// site is an existing VPC that the cluster adopts. Subnet a has its own route table, b the VPC's
// main one.
type site struct {
	c            Cloud
	API          *ec2.Client
	Vpc          string
	A, B         string
	TableA, Main string
}

// Answer returns the result of a call that must succeed.
func Answer[T any](t *testing.T) func(T, error) T {
	t.Helper()
	return func(v T, err error) T {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		return v
	}
}

func NewSite(t *testing.T, c Cloud) *site {
	t.Helper()
	s := &site{c: c, API: c.Client.EC2}
	ctx := t.Context()
	s.Vpc = *Answer[*ec2.CreateVpcOutput](t)(s.API.CreateVpc(ctx, &ec2.CreateVpcInput{CidrBlock: sdk.String("10.240.0.0/16")})).Vpc.VpcId
	s.A, s.B = s.Subnet(t, "10.240.0.0/24"), s.Subnet(t, "10.240.1.0/24")
	s.TableA = s.Table(t)
	Answer[*ec2.AssociateRouteTableOutput](t)(s.API.AssociateRouteTable(ctx, &ec2.AssociateRouteTableInput{RouteTableId: &s.TableA, SubnetId: &s.A}))
	out := Answer[*ec2.DescribeRouteTablesOutput](t)(s.API.DescribeRouteTables(ctx, &ec2.DescribeRouteTablesInput{Filters: []types.Filter{
		{Name: sdk.String("vpc-id"), Values: []string{s.Vpc}}, {Name: sdk.String("association.main"), Values: []string{"true"}}}}))
	s.Main = *out.RouteTables[0].RouteTableId
	return s
}

func (s *site) Subnet(t *testing.T, cidr string) string {
	t.Helper()
	return *Answer[*ec2.CreateSubnetOutput](t)(s.API.CreateSubnet(t.Context(), &ec2.CreateSubnetInput{VpcId: &s.Vpc, CidrBlock: &cidr, AvailabilityZone: sdk.String("us-east-1a")})).Subnet.SubnetId
}

func (s *site) Table(t *testing.T) string {
	t.Helper()
	return *Answer[*ec2.CreateRouteTableOutput](t)(s.API.CreateRouteTable(t.Context(), &ec2.CreateRouteTableInput{VpcId: &s.Vpc})).RouteTable.RouteTableId
}

func (s *site) Network(subnets ...any) Values {
	config := NetworkConfig()
	config["vpc_id"], config["subnet_ids"] = s.Vpc, subnets
	return config
}

// Routes returns the destinations in a route table, without the VPC's own.
func (s *site) Routes(t *testing.T, table string) string {
	t.Helper()
	out := Answer[*ec2.DescribeRouteTablesOutput](t)(s.API.DescribeRouteTables(t.Context(), &ec2.DescribeRouteTablesInput{RouteTableIds: []string{table}}))
	var to []string
	for _, r := range out.RouteTables[0].Routes {
		if sdk.ToString(r.GatewayId) != "local" {
			to = append(to, *r.DestinationCidrBlock)
		}
	}
	slices.Sort(to)
	return strings.Join(to, " ")
}

// Drift returns all findings of a resource's last refresh.
func (i *Instance) Drift() string {
	found, _ := i.Get("drift").(Values)
	var out []string
	for thing, words := range found {
		out = append(out, thing+": "+words.(string))
	}
	slices.Sort(out)
	return strings.Join(out, "\n")
}

// Rules returns a group's rules.
func (s *site) Rules(t *testing.T, group string) []types.IpPermission {
	t.Helper()
	return Answer[*ec2.DescribeSecurityGroupsOutput](t)(s.API.DescribeSecurityGroups(t.Context(), &ec2.DescribeSecurityGroupsInput{GroupIds: []string{group}})).SecurityGroups[0].IpPermissions
}

// Layout describes the subnets of a network as EC2 has them: name, network, zone, whether machines get a
// public address, and where the default route leads.
func (c Cloud) Layout(t *testing.T, network *Instance) string {
	t.Helper()
	vpc := []types.Filter{{Name: sdk.String("vpc-id"), Values: []string{network.Get("vpc_id").(string)}}}
	subnets := Answer[*ec2.DescribeSubnetsOutput](t)(c.Client.EC2.DescribeSubnets(t.Context(), &ec2.DescribeSubnetsInput{Filters: vpc})).Subnets
	tables := Answer[*ec2.DescribeRouteTablesOutput](t)(c.Client.EC2.DescribeRouteTables(t.Context(), &ec2.DescribeRouteTablesInput{Filters: vpc})).RouteTables
	names := map[string]string{}
	for _, n := range c.Nats(t, network) {
		names[*n.NatGatewayId] = NameTag(n.Tags)
	}
	var lines []string
	for _, s := range subnets {
		to := "nothing"
		for _, table := range tables {
			if !slices.ContainsFunc(table.Associations, func(a types.RouteTableAssociation) bool { return sdk.ToString(a.SubnetId) == *s.SubnetId }) {
				continue
			}
			for _, r := range table.Routes {
				if sdk.ToString(r.DestinationCidrBlock) != "0.0.0.0/0" {
					continue
				}
				if gateway := sdk.ToString(r.GatewayId); gateway != "" {
					to = gateway[:3]
				} else {
					to = names[sdk.ToString(r.NatGatewayId)]
				}
			}
		}
		lines = append(lines, fmt.Sprintf("%s %s %s %t %s", NameTag(s.Tags), *s.CidrBlock, *s.AvailabilityZone, *s.MapPublicIpOnLaunch, to))
	}
	slices.Sort(lines)
	return strings.Join(lines, "\n")
}

// Nats returns the NAT gateways of a network that are not gone.
func (c Cloud) Nats(t *testing.T, network *Instance) []types.NatGateway {
	t.Helper()
	out := Answer[*ec2.DescribeNatGatewaysOutput](t)(c.Client.EC2.DescribeNatGateways(t.Context(), &ec2.DescribeNatGatewaysInput{
		Filter: []types.Filter{{Name: sdk.String("vpc-id"), Values: []string{network.Get("vpc_id").(string)}}, {Name: sdk.String("state"), Values: []string{"pending", "available"}}},
	}))
	return out.NatGateways
}

func NameTag(tags []types.Tag) string {
	for _, tag := range tags {
		if sdk.ToString(tag.Key) == "Name" {
			return sdk.ToString(tag.Value)
		}
	}
	return "nameless"
}

// Addresses returns the number of Elastic IPs.
func (c Cloud) Addresses(t *testing.T) int {
	t.Helper()
	return len(Answer[*ec2.DescribeAddressesOutput](t)(c.Client.EC2.DescribeAddresses(t.Context(), &ec2.DescribeAddressesInput{})).Addresses)
}

// NLBCluster is a network with load balancers in front of two controllers.
type NLBCluster struct {
	Cloud
	Network, NLB *Instance
	Controllers  []*Instance
}

func (n *NLBCluster) Config(more Values) Values {
	var hosts []any
	for _, c := range n.Controllers {
		hosts = append(hosts, c.Get("host"))
	}
	return With(Values{"network": n.Network.Get("ref"), "controllers": hosts}, more)
}

// Arn returns the ARN of one of the load balancers.
func (n *NLBCluster) Arn(which string) *string {
	o, _ := n.NLB.Get(which).(Values)
	arn, _ := o["arn"].(string)
	return &arn
}

// Group returns the target group of a load balancer.
func (n *NLBCluster) Group(t *testing.T, which string) elbtypes.TargetGroup {
	t.Helper()
	out := Answer[*elb.DescribeTargetGroupsOutput](t)(n.Client.ELB.DescribeTargetGroups(t.Context(), &elb.DescribeTargetGroupsInput{LoadBalancerArn: n.Arn(which)}))
	return out.TargetGroups[0]
}

func (n *NLBCluster) Targets(t *testing.T, which string) (out []string) {
	t.Helper()
	found := Answer[*elb.DescribeTargetHealthOutput](t)(n.Client.ELB.DescribeTargetHealth(t.Context(), &elb.DescribeTargetHealthInput{TargetGroupArn: n.Group(t, which).TargetGroupArn}))
	for _, d := range found.TargetHealthDescriptions {
		if d.TargetHealth.State != elbtypes.TargetHealthStateEnumDraining {
			out = append(out, *d.Target.Id)
		}
	}
	slices.Sort(out)
	return out
}

func (n *NLBCluster) Ids() (out []string) {
	for _, c := range n.Controllers {
		out = append(out, c.Get("id").(string))
	}
	slices.Sort(out)
	return out
}
