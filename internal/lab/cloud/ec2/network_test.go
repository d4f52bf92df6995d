package ec2_test

import (
	"net/netip"
	"slices"
	"testing"

	"github.com/aws/aws-sdk-go-v2/aws"
	awsec2 "github.com/aws/aws-sdk-go-v2/service/ec2"
	"github.com/aws/aws-sdk-go-v2/service/ec2/types"

	"github.com/k8s-from-scratch/terraform-provider-k8s/internal/lab/cloud/cloudtest"
	"github.com/k8s-from-scratch/terraform-provider-k8s/internal/lab/cloud/ec2"
	"github.com/k8s-from-scratch/terraform-provider-k8s/internal/lab/network"
)

func TestIPv6Refused(t *testing.T) {
	l := cloudtest.New(t)
	ctx := t.Context()
	_, err := l.CreateVpc(ctx, &awsec2.CreateVpcInput{CidrBlock: aws.String("10.1.0.0/16"), AmazonProvidedIpv6CidrBlock: aws.Bool(true)})
	cloudtest.Refused(t, err, "InvalidParameterValue")
	vpc := cloudtest.Must[*awsec2.CreateVpcOutput](t)(l.CreateVpc(ctx, &awsec2.CreateVpcInput{CidrBlock: aws.String("10.1.0.0/16"), AmazonProvidedIpv6CidrBlock: aws.Bool(false)})).Vpc
	subnet := cloudtest.Must[*awsec2.CreateSubnetOutput](t)(l.CreateSubnet(ctx, &awsec2.CreateSubnetInput{VpcId: vpc.VpcId, CidrBlock: aws.String("10.1.0.0/24")})).Subnet
	assign := func(on bool) error {
		_, err := l.ModifySubnetAttribute(ctx, &awsec2.ModifySubnetAttributeInput{SubnetId: subnet.SubnetId, AssignIpv6AddressOnCreation: &types.AttributeBooleanValue{Value: &on}})
		return err
	}
	cloudtest.Refused(t, assign(false), "")
	cloudtest.Refused(t, assign(true), "InvalidParameterValue")
	found := cloudtest.Must[*awsec2.DescribeSubnetsOutput](t)(l.DescribeSubnets(ctx, &awsec2.DescribeSubnetsInput{SubnetIds: []string{*subnet.SubnetId}})).Subnets
	if found[0].AssignIpv6AddressOnCreation == nil || *found[0].AssignIpv6AddressOnCreation {
		t.Errorf("subnet: %+v", found[0])
	}
}

// TestNetworkRefusals checks EC2's refusals for VPCs, subnets, gateways and routes, in a site with
// one instance.
func TestNetworkRefusals(t *testing.T) {
	l := cloudtest.New(t)
	s := l.NewSite(t)
	i := l.Run(t, s.RunInput())
	other := cloudtest.Must[*awsec2.CreateVpcOutput](t)(l.CreateVpc(t.Context(), &awsec2.CreateVpcInput{CidrBlock: aws.String("10.240.0.0/16")})).Vpc
	spare := cloudtest.Must[*awsec2.CreateInternetGatewayOutput](t)(l.CreateInternetGateway(t.Context(), &awsec2.CreateInternetGatewayInput{})).InternetGateway
	foreign := cloudtest.Must[*awsec2.CreateRouteTableOutput](t)(l.CreateRouteTable(t.Context(), &awsec2.CreateRouteTableInput{VpcId: other.VpcId})).RouteTable
	second := cloudtest.Must[*awsec2.CreateRouteTableOutput](t)(l.CreateRouteTable(t.Context(), &awsec2.CreateRouteTableInput{VpcId: &s.VPC})).RouteTable
	cloudtest.Must[*awsec2.AllocateAddressOutput](t)(l.AllocateAddress(t.Context(), &awsec2.AllocateAddressInput{}))
	eip := cloudtest.Must[*awsec2.AllocateAddressOutput](t)(l.AllocateAddress(t.Context(), &awsec2.AllocateAddressInput{}))
	cloudtest.Must[*awsec2.AssociateAddressOutput](t)(l.AssociateAddress(t.Context(), &awsec2.AssociateAddressInput{AllocationId: eip.AllocationId, InstanceId: i.InstanceId}))

	ctx := t.Context()
	vpc := func(cidr string) error {
		_, err := l.CreateVpc(ctx, &awsec2.CreateVpcInput{CidrBlock: aws.String(cidr)})
		return err
	}
	subnet := func(cidr string) error {
		_, err := l.CreateSubnet(ctx, &awsec2.CreateSubnetInput{VpcId: &s.VPC, CidrBlock: aws.String(cidr)})
		return err
	}
	route := func(change func(*awsec2.CreateRouteInput)) error {
		in := &awsec2.CreateRouteInput{RouteTableId: &s.Table, DestinationCidrBlock: aws.String("10.200.0.0/24"), InstanceId: i.InstanceId}
		change(in)
		_, err := l.CreateRoute(ctx, in)
		return err
	}
	for _, tc := range []struct {
		name, code string
		call       func() error
	}{
		{"VPC too large", "InvalidVpc.Range", func() error { return vpc("10.0.0.0/8") }},
		{"VPC too small", "InvalidVpc.Range", func() error { return vpc("10.0.0.0/29") }},
		{"VPC CIDR not a CIDR", "InvalidParameterValue", func() error { return vpc("10.0.0/16") }},
		{"VPC in use", "DependencyViolation", func() error {
			_, err := l.DeleteVpc(ctx, &awsec2.DeleteVpcInput{VpcId: &s.VPC})
			return err
		}},
		{"VPC unknown", "InvalidVpcID.NotFound", func() error {
			_, err := l.DeleteVpc(ctx, &awsec2.DeleteVpcInput{VpcId: aws.String("vpc-00000000000000000")})
			return err
		}},
		{"VPC id malformed", "InvalidVpcID.Malformed", func() error {
			_, err := l.DescribeVpcs(ctx, &awsec2.DescribeVpcsInput{VpcIds: []string{"vpc-nonsense"}})
			return err
		}},
		{"VPC attribute unknown", "InvalidParameterValue", func() error {
			_, err := l.DescribeVpcAttribute(ctx, &awsec2.DescribeVpcAttributeInput{VpcId: &s.VPC, Attribute: "nonsense"})
			return err
		}},
		{"subnet outside the VPC", "InvalidSubnet.Range", func() error { return subnet("10.241.0.0/24") }},
		{"subnet too small", "InvalidSubnet.Range", func() error { return subnet("10.240.1.0/29") }},
		{"subnet overlaps", "InvalidSubnet.Conflict", func() error { return subnet("10.240.0.128/25") }},
		{"subnet in an unknown zone", "InvalidParameterValue", func() error {
			_, err := l.CreateSubnet(ctx, &awsec2.CreateSubnetInput{VpcId: &s.VPC, CidrBlock: aws.String("10.240.1.0/24"), AvailabilityZone: aws.String("us-east-1z")})
			return err
		}},
		{"subnet with interfaces", "DependencyViolation", func() error {
			_, err := l.DeleteSubnet(ctx, &awsec2.DeleteSubnetInput{SubnetId: &s.Subnet})
			return err
		}},
		{"subnet unknown", "InvalidSubnetID.NotFound", func() error {
			_, err := l.DeleteSubnet(ctx, &awsec2.DeleteSubnetInput{SubnetId: aws.String("subnet-00000000000000000")})
			return err
		}},
		{"subnet id malformed", "InvalidSubnetID.Malformed", func() error {
			_, err := l.DeleteSubnet(ctx, &awsec2.DeleteSubnetInput{SubnetId: aws.String("subnet-x")})
			return err
		}},
		{"gateway attached twice", "Resource.AlreadyAssociated", func() error {
			_, err := l.AttachInternetGateway(ctx, &awsec2.AttachInternetGatewayInput{InternetGatewayId: &s.Gateway, VpcId: other.VpcId})
			return err
		}},
		{"second gateway for a VPC", "InvalidParameterValue", func() error {
			_, err := l.AttachInternetGateway(ctx, &awsec2.AttachInternetGatewayInput{InternetGatewayId: spare.InternetGatewayId, VpcId: &s.VPC})
			return err
		}},
		{"gateway with mapped addresses", "DependencyViolation", func() error {
			_, err := l.DetachInternetGateway(ctx, &awsec2.DetachInternetGatewayInput{InternetGatewayId: &s.Gateway, VpcId: &s.VPC})
			return err
		}},
		{"gateway not attached", "Gateway.NotAttached", func() error {
			_, err := l.DetachInternetGateway(ctx, &awsec2.DetachInternetGatewayInput{InternetGatewayId: spare.InternetGatewayId, VpcId: &s.VPC})
			return err
		}},
		{"gateway deleted while attached", "DependencyViolation", func() error {
			_, err := l.DeleteInternetGateway(ctx, &awsec2.DeleteInternetGatewayInput{InternetGatewayId: &s.Gateway})
			return err
		}},
		{"gateway unknown", "InvalidInternetGatewayID.NotFound", func() error {
			_, err := l.DeleteInternetGateway(ctx, &awsec2.DeleteInternetGatewayInput{InternetGatewayId: aws.String("igw-00000000000000000")})
			return err
		}},
		{"route exists", "RouteAlreadyExists", func() error {
			return route(func(in *awsec2.CreateRouteInput) { in.DestinationCidrBlock = aws.String("0.0.0.0/0") })
		}},
		{"route for the local CIDR", "RouteAlreadyExists", func() error {
			return route(func(in *awsec2.CreateRouteInput) { in.DestinationCidrBlock = aws.String("10.240.0.0/16") })
		}},
		{"route inside the VPC to a gateway", "InvalidParameterValue", func() error {
			return route(func(in *awsec2.CreateRouteInput) {
				in.DestinationCidrBlock, in.InstanceId, in.GatewayId = aws.String("10.240.9.0/24"), nil, &s.Gateway
			})
		}},
		{"route to a gateway of no VPC", "InvalidParameterValue", func() error {
			return route(func(in *awsec2.CreateRouteInput) { in.InstanceId, in.GatewayId = nil, spare.InternetGatewayId })
		}},
		{"route to another VPC's instance", "InvalidParameterValue", func() error {
			return route(func(in *awsec2.CreateRouteInput) { in.RouteTableId = foreign.RouteTableId })
		}},
		{"route with two targets", "InvalidParameterCombination", func() error {
			return route(func(in *awsec2.CreateRouteInput) { in.GatewayId = &s.Gateway })
		}},
		{"route without a target", "MissingParameter", func() error {
			return route(func(in *awsec2.CreateRouteInput) { in.InstanceId = nil })
		}},
		{"route to an unknown interface", "InvalidNetworkInterfaceID.NotFound", func() error {
			return route(func(in *awsec2.CreateRouteInput) {
				in.InstanceId, in.NetworkInterfaceId = nil, aws.String("eni-00000000000000000")
			})
		}},
		{"local route deleted", "InvalidParameterValue", func() error {
			_, err := l.DeleteRoute(ctx, &awsec2.DeleteRouteInput{RouteTableId: &s.Table, DestinationCidrBlock: aws.String("10.240.0.0/16")})
			return err
		}},
		{"unknown route deleted", "InvalidRoute.NotFound", func() error {
			_, err := l.DeleteRoute(ctx, &awsec2.DeleteRouteInput{RouteTableId: &s.Table, DestinationCidrBlock: aws.String("10.9.0.0/16")})
			return err
		}},
		{"unknown route replaced", "InvalidParameterValue", func() error {
			_, err := l.ReplaceRoute(ctx, &awsec2.ReplaceRouteInput{RouteTableId: &s.Table, DestinationCidrBlock: aws.String("10.9.0.0/16"), GatewayId: &s.Gateway})
			return err
		}},
		{"route table unknown", "InvalidRouteTableID.NotFound", func() error {
			_, err := l.DeleteRouteTable(ctx, &awsec2.DeleteRouteTableInput{RouteTableId: aws.String("rtb-00000000000000000")})
			return err
		}},
		{"route table id malformed", "InvalidRouteTableId.Malformed", func() error {
			_, err := l.DeleteRouteTable(ctx, &awsec2.DeleteRouteTableInput{RouteTableId: aws.String("vpc-00000000000000000")})
			return err
		}},
		{"route table in use", "DependencyViolation", func() error {
			_, err := l.DeleteRouteTable(ctx, &awsec2.DeleteRouteTableInput{RouteTableId: &s.Table})
			return err
		}},
		{"subnet has another table", "Resource.AlreadyAssociated", func() error {
			_, err := l.AssociateRouteTable(ctx, &awsec2.AssociateRouteTableInput{RouteTableId: second.RouteTableId, SubnetId: &s.Subnet})
			return err
		}},
		{"association unknown", "InvalidAssociationID.NotFound", func() error {
			_, err := l.DisassociateRouteTable(ctx, &awsec2.DisassociateRouteTableInput{AssociationId: aws.String("rtbassoc-00000000000000000")})
			return err
		}},
	} {
		t.Run(tc.name, func(t *testing.T) { cloudtest.Refused(t, tc.call(), tc.code) })
	}
}

func TestVPCComesWithMainTableAndDefaultGroup(t *testing.T) {
	l := cloudtest.New(t)
	ctx := t.Context()
	v := cloudtest.Must[*awsec2.CreateVpcOutput](t)(l.CreateVpc(ctx, &awsec2.CreateVpcInput{
		CidrBlock: aws.String("10.1.2.3/16"), TagSpecifications: cloudtest.Tags(types.ResourceTypeVpc, "Name", "demo"),
	})).Vpc
	if *v.CidrBlock != "10.1.0.0/16" || *v.Tags[0].Value != "demo" || v.State != types.VpcStateAvailable {
		t.Errorf("created %+v", v)
	}
	in := []types.Filter{cloudtest.Filter("vpc-id", *v.VpcId)}
	tables := cloudtest.Must[*awsec2.DescribeRouteTablesOutput](t)(l.DescribeRouteTables(ctx, &awsec2.DescribeRouteTablesInput{Filters: append(in, cloudtest.Filter("association.main", "true"))})).RouteTables
	if len(tables) != 1 || len(tables[0].Routes) != 1 || *tables[0].Routes[0].GatewayId != "local" || !*tables[0].Associations[0].Main {
		t.Errorf("main route table: %+v", tables)
	}
	groups := cloudtest.Must[*awsec2.DescribeSecurityGroupsOutput](t)(l.DescribeSecurityGroups(ctx, &awsec2.DescribeSecurityGroupsInput{Filters: in})).SecurityGroups
	if len(groups) != 1 || *groups[0].GroupName != "default" || *groups[0].IpPermissions[0].UserIdGroupPairs[0].GroupId != *groups[0].GroupId {
		t.Errorf("default group: %+v", groups)
	}
	_, err := l.DeleteSecurityGroup(ctx, &awsec2.DeleteSecurityGroupInput{GroupId: groups[0].GroupId})
	cloudtest.Refused(t, err, "CannotDelete")

	cloudtest.Must[*awsec2.ModifyVpcAttributeOutput](t)(l.ModifyVpcAttribute(ctx, &awsec2.ModifyVpcAttributeInput{VpcId: v.VpcId, EnableDnsHostnames: &types.AttributeBooleanValue{Value: aws.Bool(true)}}))
	attr := cloudtest.Must[*awsec2.DescribeVpcAttributeOutput](t)(l.DescribeVpcAttribute(ctx, &awsec2.DescribeVpcAttributeInput{VpcId: v.VpcId, Attribute: types.VpcAttributeNameEnableDnsHostnames}))
	if !*attr.EnableDnsHostnames.Value {
		t.Error("enableDnsHostnames was not kept")
	}

	cloudtest.Must[*awsec2.DeleteVpcOutput](t)(l.DeleteVpc(ctx, &awsec2.DeleteVpcInput{VpcId: v.VpcId}))
	if o := l.Account.Overview(); o.Total != 0 {
		t.Errorf("left after DeleteVpc: %+v", o)
	}
}

// TestRoutesFollowTheirTargets checks the routes in the network's configuration, and their state in
// EC2.
func TestRoutesFollowTheirTargets(t *testing.T) {
	l := cloudtest.New(t)
	s := l.NewSite(t)
	ctx := t.Context()
	i := l.Run(t, s.RunInput())
	dst := netip.MustParsePrefix("10.200.0.0/24")
	cloudtest.Must[*awsec2.CreateRouteOutput](t)(l.CreateRoute(ctx, &awsec2.CreateRouteInput{RouteTableId: &s.Table, DestinationCidrBlock: aws.String(dst.String()), InstanceId: i.InstanceId}))

	kind := func() network.TargetKind {
		for _, r := range l.Network.VPC(t, s.VPC).RouteTables {
			for _, x := range r.Routes {
				if r.ID == s.Table && x.Destination == dst {
					return x.Target.Kind
				}
			}
		}
		return -1
	}
	state := func() types.RouteState {
		out := cloudtest.Must[*awsec2.DescribeRouteTablesOutput](t)(l.DescribeRouteTables(ctx, &awsec2.DescribeRouteTablesInput{RouteTableIds: []string{s.Table}}))
		for _, r := range out.RouteTables[0].Routes {
			if *r.DestinationCidrBlock == dst.String() {
				return r.State
			}
		}
		return ""
	}
	if kind() != network.ToInterface || state() != types.RouteStateActive {
		t.Fatalf("route to a running instance: %v, %s", kind(), state())
	}
	cloudtest.Must[*awsec2.StopInstancesOutput](t)(l.StopInstances(ctx, &awsec2.StopInstancesInput{InstanceIds: []string{*i.InstanceId}}))
	l.Await(t, *i.InstanceId, types.InstanceStateNameStopped)
	if state() != types.RouteStateBlackhole {
		t.Errorf("route to a stopped instance is %s", state())
	}
	cloudtest.Must[*awsec2.ReplaceRouteOutput](t)(l.ReplaceRoute(ctx, &awsec2.ReplaceRouteInput{RouteTableId: &s.Table, DestinationCidrBlock: aws.String(dst.String()), GatewayId: &s.Gateway}))
	if kind() != network.InternetGateway {
		t.Errorf("replaced route leads to %v", kind())
	}
	cloudtest.Must[*awsec2.DetachInternetGatewayOutput](t)(l.DetachInternetGateway(ctx, &awsec2.DetachInternetGatewayInput{InternetGatewayId: &s.Gateway, VpcId: &s.VPC}))
	if kind() != network.Blackhole || state() != types.RouteStateBlackhole {
		t.Errorf("route to a detached gateway: %v, %s", kind(), state())
	}
	cloudtest.Must[*awsec2.DeleteRouteOutput](t)(l.DeleteRoute(ctx, &awsec2.DeleteRouteInput{RouteTableId: &s.Table, DestinationCidrBlock: aws.String(dst.String())}))
	if state() != "" {
		t.Error("the deleted route is still there")
	}
}

func TestRouteTableAssociations(t *testing.T) {
	l := cloudtest.New(t)
	s := l.NewSite(t)
	ctx := t.Context()
	table := func() string { return l.Network.VPC(t, s.VPC).Subnets[0].RouteTableID }
	if table() != s.Table {
		t.Fatalf("the subnet uses %s", table())
	}
	out := cloudtest.Must[*awsec2.DescribeRouteTablesOutput](t)(l.DescribeRouteTables(ctx, &awsec2.DescribeRouteTablesInput{Filters: []types.Filter{cloudtest.Filter("association.subnet-id", s.Subnet)}}))
	assoc := out.RouteTables[0].Associations[0].RouteTableAssociationId
	second := cloudtest.Must[*awsec2.CreateRouteTableOutput](t)(l.CreateRouteTable(ctx, &awsec2.CreateRouteTableInput{VpcId: &s.VPC, ClientToken: aws.String("once")})).RouteTable
	again := cloudtest.Must[*awsec2.CreateRouteTableOutput](t)(l.CreateRouteTable(ctx, &awsec2.CreateRouteTableInput{VpcId: &s.VPC, ClientToken: aws.String("once")})).RouteTable
	if *second.RouteTableId != *again.RouteTableId {
		t.Error("the same client token made two route tables")
	}
	replaced := cloudtest.Must[*awsec2.ReplaceRouteTableAssociationOutput](t)(l.ReplaceRouteTableAssociation(ctx, &awsec2.ReplaceRouteTableAssociationInput{AssociationId: assoc, RouteTableId: second.RouteTableId}))
	if table() != *second.RouteTableId {
		t.Errorf("after replacing the association the subnet uses %s", table())
	}
	cloudtest.Must[*awsec2.DisassociateRouteTableOutput](t)(l.DisassociateRouteTable(ctx, &awsec2.DisassociateRouteTableInput{AssociationId: replaced.NewAssociationId}))
	if got := table(); got == s.Table || got == *second.RouteTableId {
		t.Errorf("without an association the subnet uses %s instead of the main table", got)
	}
	tables := l.Network.VPC(t, s.VPC).RouteTables
	if !slices.ContainsFunc(tables, func(r network.RouteTable) bool { return r.ID == table() }) {
		t.Error("the subnet's table is not among the network's tables")
	}
}

func TestRouteQuota(t *testing.T) {
	l := cloudtest.New(t, func(l *cloudtest.Lab) { l.Quotas = ec2.Quotas{RoutesPerTable: 3} })
	s := l.NewSite(t)
	i := l.Run(t, s.RunInput())
	route := func(cidr string) error {
		_, err := l.CreateRoute(t.Context(), &awsec2.CreateRouteInput{RouteTableId: &s.Table, DestinationCidrBlock: aws.String(cidr), InstanceId: i.InstanceId})
		return err
	}
	// The site has one route, to the internet; the local one does not count.
	for _, cidr := range []string{"10.200.0.0/24", "10.200.1.0/24"} {
		if err := route(cidr); err != nil {
			t.Fatal(err)
		}
	}
	cloudtest.Refused(t, route("10.200.2.0/24"), "RouteLimitExceeded")
	cloudtest.Must[*awsec2.DeleteRouteOutput](t)(l.DeleteRoute(t.Context(), &awsec2.DeleteRouteInput{RouteTableId: &s.Table, DestinationCidrBlock: aws.String("10.200.1.0/24")}))
	if err := route("10.200.2.0/24"); err != nil {
		t.Error(err)
	}
}

// TestLateAssociation checks that a fault can hide a new association from DescribeRouteTables.
func TestLateAssociation(t *testing.T) {
	l := cloudtest.New(t)
	s := l.NewSite(t)
	ctx := t.Context()
	l.Fault(t, cloudtest.Fields{"kind": "eventual", "action": "AssociateRouteTable", "calls": 1})
	second := cloudtest.Must[*awsec2.CreateRouteTableOutput](t)(l.CreateRouteTable(ctx, &awsec2.CreateRouteTableInput{VpcId: &s.VPC})).RouteTable.RouteTableId
	subnet := cloudtest.Must[*awsec2.CreateSubnetOutput](t)(l.CreateSubnet(ctx, &awsec2.CreateSubnetInput{VpcId: &s.VPC, CidrBlock: aws.String("10.240.9.0/24"), AvailabilityZone: aws.String("us-east-1a")})).Subnet.SubnetId
	cloudtest.Must[*awsec2.AssociateRouteTableOutput](t)(l.AssociateRouteTable(ctx, &awsec2.AssociateRouteTableInput{RouteTableId: second, SubnetId: subnet}))
	for _, want := range []int{0, 1} {
		out := cloudtest.Must[*awsec2.DescribeRouteTablesOutput](t)(l.DescribeRouteTables(ctx, &awsec2.DescribeRouteTablesInput{Filters: []types.Filter{cloudtest.Filter("association.subnet-id", *subnet)}}))
		if len(out.RouteTables) != want {
			t.Errorf("%d tables of the subnet, wanted %d", len(out.RouteTables), want)
		}
	}
}
