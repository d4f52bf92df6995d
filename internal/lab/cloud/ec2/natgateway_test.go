package ec2_test

import (
	"fmt"
	"net/http"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	awsec2 "github.com/aws/aws-sdk-go-v2/service/ec2"
	"github.com/aws/aws-sdk-go-v2/service/ec2/types"

	"github.com/k8s-from-scratch/terraform-provider-k8s/internal/lab/cloud/cloudtest"
	"github.com/k8s-from-scratch/terraform-provider-k8s/internal/lab/cloud/ec2"
	"github.com/k8s-from-scratch/terraform-provider-k8s/internal/lab/network"
)

func address(t *testing.T, l *cloudtest.Lab) *awsec2.AllocateAddressOutput {
	t.Helper()
	return cloudtest.Must[*awsec2.AllocateAddressOutput](t)(l.AllocateAddress(t.Context(), &awsec2.AllocateAddressInput{}))
}

func natGateway(t *testing.T, l *cloudtest.Lab, id string) types.NatGateway {
	t.Helper()
	return cloudtest.Must[*awsec2.DescribeNatGatewaysOutput](t)(l.DescribeNatGateways(t.Context(), &awsec2.DescribeNatGatewaysInput{NatGatewayIds: []string{id}})).NatGateways[0]
}

// settles waits until a NAT gateway has a state, some seconds later.
func settles(t *testing.T, l *cloudtest.Lab, id string, want types.NatGatewayState) types.NatGateway {
	t.Helper()
	l.Clock.Advance(2 * time.Second)
	cloudtest.Eventually(t, id+" is "+string(want), func() bool { return natGateway(t, l, id).State == want })
	return natGateway(t, l, id)
}

// newNATGateway makes an available one.
func newNATGateway(t *testing.T, l *cloudtest.Lab, subnet string) types.NatGateway {
	t.Helper()
	out := cloudtest.Must[*awsec2.CreateNatGatewayOutput](t)(l.CreateNatGateway(t.Context(), &awsec2.CreateNatGatewayInput{SubnetId: &subnet, AllocationId: address(t, l).AllocationId}))
	return settles(t, l, *out.NatGateway.NatGatewayId, types.NatGatewayStateAvailable)
}

func deleteNATGateway(t *testing.T, l *cloudtest.Lab, id string) error {
	t.Helper()
	_, err := l.DeleteNatGateway(t.Context(), &awsec2.DeleteNatGatewayInput{NatGatewayId: &id})
	return err
}

func TestNATGatewayLife(t *testing.T) {
	l := cloudtest.New(t)
	s := l.NewSite(t)
	ctx := t.Context()
	eip := address(t, l)
	in := &awsec2.CreateNatGatewayInput{
		SubnetId: &s.Subnet, AllocationId: eip.AllocationId, ClientToken: aws.String("once"), TagSpecifications: cloudtest.Tags(types.ResourceTypeNatgateway, "Name", "nat"),
	}
	made := cloudtest.Must[*awsec2.CreateNatGatewayOutput](t)(l.CreateNatGateway(ctx, in))
	g := *made.NatGateway
	id := *g.NatGatewayId
	if g.State != types.NatGatewayStatePending || g.ConnectivityType != types.ConnectivityTypePublic || *g.VpcId != s.VPC || *made.ClientToken != "once" {
		t.Errorf("made: %+v", g)
	}
	if again := cloudtest.Must[*awsec2.CreateNatGatewayOutput](t)(l.CreateNatGateway(ctx, in)); *again.NatGateway.NatGatewayId != id {
		t.Error("the same token made another NAT gateway")
	}
	in.SubnetId = aws.String("subnet-00000000000000000")
	_, err := l.CreateNatGateway(ctx, in)
	cloudtest.Refused(t, err, "IdempotentParameterMismatch")

	g = settles(t, l, id, types.NatGatewayStateAvailable)
	a := g.NatGatewayAddresses[0]
	if *a.PublicIp != *eip.PublicIp || *a.AllocationId != *eip.AllocationId || a.Status != types.NatGatewayAddressStatusSucceeded || !*a.IsPrimary {
		t.Errorf("its address: %+v", a)
	}
	for name, value := range map[string]string{"nat-gateway-id": id, "vpc-id": s.VPC, "subnet-id": s.Subnet, "state": "available", "tag:Name": "nat", "tag-key": "Name"} {
		for want, value := range map[int]string{1: value, 0: "other"} {
			found := cloudtest.Must[*awsec2.DescribeNatGatewaysOutput](t)(l.DescribeNatGateways(ctx, &awsec2.DescribeNatGatewaysInput{Filter: []types.Filter{cloudtest.Filter(name, value)}})).NatGateways
			if len(found) != want {
				t.Errorf("filter %s=%s finds %d", name, value, len(found))
			}
		}
	}
	e := cloudtest.Must[*awsec2.DescribeNetworkInterfacesOutput](t)(l.DescribeNetworkInterfaces(ctx, &awsec2.DescribeNetworkInterfacesInput{Filters: []types.Filter{cloudtest.Filter("interface-type", "nat_gateway"), cloudtest.Filter("requester-managed", "true")}})).NetworkInterfaces
	if len(e) != 1 || *e[0].NetworkInterfaceId != *a.NetworkInterfaceId || e[0].Status != types.NetworkInterfaceStatusInUse || *e[0].SourceDestCheck || len(e[0].Groups) != 0 ||
		*e[0].Association.PublicIp != *eip.PublicIp || *e[0].Description != "Interface for NAT Gateway "+id || e[0].InterfaceType != "nat_gateway" {
		t.Errorf("its interface: %+v", e)
	}

	// It holds what it uses.
	_, err = l.DeleteSubnet(ctx, &awsec2.DeleteSubnetInput{SubnetId: &s.Subnet})
	cloudtest.Refused(t, err, "DependencyViolation")
	_, err = l.DetachInternetGateway(ctx, &awsec2.DetachInternetGatewayInput{InternetGatewayId: &s.Gateway, VpcId: &s.VPC})
	cloudtest.Refused(t, err, "DependencyViolation")
	_, err = l.ReleaseAddress(ctx, &awsec2.ReleaseAddressInput{AllocationId: eip.AllocationId})
	cloudtest.Refused(t, err, "InvalidIPAddress.InUse")
	_, err = l.DisassociateAddress(ctx, &awsec2.DisassociateAddressInput{AssociationId: a.AssociationId})
	cloudtest.Refused(t, err, "AuthFailure")
	_, err = l.AssociateAddress(ctx, &awsec2.AssociateAddressInput{AllocationId: address(t, l).AllocationId, NetworkInterfaceId: a.NetworkInterfaceId})
	cloudtest.Refused(t, err, "AuthFailure")
	_, err = l.AssociateAddress(ctx, &awsec2.AssociateAddressInput{AllocationId: eip.AllocationId, InstanceId: l.Run(t, s.RunInput()).InstanceId})
	cloudtest.Refused(t, err, "AuthFailure")
	_, err = l.DeleteNetworkInterface(ctx, &awsec2.DeleteNetworkInterfaceInput{NetworkInterfaceId: a.NetworkInterfaceId})
	cloudtest.Refused(t, err, "InvalidNetworkInterface.InUse")

	if err := deleteNATGateway(t, l, id); err != nil {
		t.Fatal(err)
	}
	if g := natGateway(t, l, id); g.State != types.NatGatewayStateDeleting || g.DeleteTime == nil {
		t.Errorf("while it is deleted: %+v", g)
	}
	_, err = l.ReleaseAddress(ctx, &awsec2.ReleaseAddressInput{AllocationId: eip.AllocationId})
	cloudtest.Refused(t, err, "InvalidIPAddress.InUse")
	if err := deleteNATGateway(t, l, id); err != nil {
		t.Errorf("deleted again: %v", err)
	}
	g = settles(t, l, id, types.NatGatewayStateDeleted)
	if *g.NatGatewayAddresses[0].PublicIp != *eip.PublicIp || *g.Tags[0].Value != "nat" {
		t.Errorf("deleted: %+v", g)
	}
	after := cloudtest.Must[*awsec2.DescribeAddressesOutput](t)(l.DescribeAddresses(ctx, &awsec2.DescribeAddressesInput{AllocationIds: []string{*eip.AllocationId}})).Addresses[0]
	if after.AssociationId != nil {
		t.Errorf("its address is still associated: %+v", after)
	}
	_, err = l.ReleaseAddress(ctx, &awsec2.ReleaseAddressInput{AllocationId: eip.AllocationId})
	cloudtest.Refused(t, err, "AuthFailure")
	l.Clock.Advance(2 * time.Second)
	cloudtest.Must[*awsec2.ReleaseAddressOutput](t)(l.ReleaseAddress(ctx, &awsec2.ReleaseAddressInput{AllocationId: eip.AllocationId}))
	cloudtest.Refused(t, deleteNATGateway(t, l, id), "NatGatewayNotFound")
	in.SubnetId = &s.Subnet
	if again := cloudtest.Must[*awsec2.CreateNatGatewayOutput](t)(l.CreateNatGateway(ctx, in)).NatGateway; *again.NatGatewayId != id || again.State != types.NatGatewayStateDeleted {
		t.Errorf("after the deletion the token gives %+v", again)
	}
	l.Clock.Advance(time.Hour - 2*time.Second)
	natGateway(t, l, id)
	l.Clock.Advance(time.Second)
	_, err = l.DescribeNatGateways(ctx, &awsec2.DescribeNatGatewaysInput{NatGatewayIds: []string{id}})
	cloudtest.Refused(t, err, "NatGatewayNotFound")
}

// TestNATGatewayFails checks what is refused at once, and what a NAT gateway fails of while it is pending.
func TestNATGatewayFails(t *testing.T) {
	l := cloudtest.New(t)
	s := l.NewSite(t)
	ctx := t.Context()
	eip := address(t, l)
	const unknown = "00000000000000000"
	for _, tc := range []struct {
		in   awsec2.CreateNatGatewayInput
		want string
	}{
		{awsec2.CreateNatGatewayInput{AllocationId: eip.AllocationId}, "MissingParameter"},
		{awsec2.CreateNatGatewayInput{SubnetId: &s.Subnet}, "MissingParameter"},
		{awsec2.CreateNatGatewayInput{SubnetId: aws.String("subnet-" + unknown), AllocationId: eip.AllocationId}, "InvalidSubnet"},
		{awsec2.CreateNatGatewayInput{SubnetId: aws.String("here"), AllocationId: eip.AllocationId}, "InvalidSubnet"},
		{awsec2.CreateNatGatewayInput{SubnetId: &s.Subnet, AllocationId: aws.String("eipalloc-" + unknown)}, "InvalidElasticIpID.NotFound"},
		{awsec2.CreateNatGatewayInput{SubnetId: &s.Subnet, AllocationId: aws.String("mine")}, "InvalidElasticIpID.Malformed"},
		{awsec2.CreateNatGatewayInput{SubnetId: &s.Subnet, AllocationId: eip.AllocationId, ConnectivityType: types.ConnectivityTypePrivate}, "InvalidParameterCombination"},
		{awsec2.CreateNatGatewayInput{SubnetId: &s.Subnet, AllocationId: eip.AllocationId, ConnectivityType: "both"}, "InvalidParameterValue"},
		{awsec2.CreateNatGatewayInput{SubnetId: &s.Subnet, AllocationId: eip.AllocationId, PrivateIpAddress: aws.String("10.0.0.9")}, "InvalidParameterValue"},
		{awsec2.CreateNatGatewayInput{SubnetId: &s.Subnet, AllocationId: eip.AllocationId, DryRun: aws.Bool(true)}, "DryRunOperation"},
		{awsec2.CreateNatGatewayInput{SubnetId: &s.Subnet, AllocationId: eip.AllocationId, TagSpecifications: cloudtest.Tags(types.ResourceTypeVpc, "a", "b")}, "InvalidParameterValue"},
	} {
		_, err := l.CreateNatGateway(ctx, &tc.in)
		cloudtest.Refused(t, err, tc.want)
	}
	if all := cloudtest.Must[*awsec2.DescribeNatGatewaysOutput](t)(l.DescribeNatGateways(ctx, &awsec2.DescribeNatGatewaysInput{})).NatGateways; len(all) != 0 {
		t.Errorf("refused calls left %+v", all)
	}
	_, err := l.DescribeNatGateways(ctx, &awsec2.DescribeNatGatewaysInput{NatGatewayIds: []string{"mine"}})
	cloudtest.Refused(t, err, "NatGatewayMalformed")
	cloudtest.Refused(t, deleteNATGateway(t, l, "nat-"+unknown), "NatGatewayNotFound")

	i := l.Run(t, s.RunInput())
	cloudtest.Must[*awsec2.AssociateAddressOutput](t)(l.AssociateAddress(ctx, &awsec2.AssociateAddressInput{AllocationId: eip.AllocationId, InstanceId: i.InstanceId}))
	small := cloudtest.Must[*awsec2.CreateSubnetOutput](t)(l.CreateSubnet(ctx, &awsec2.CreateSubnetInput{VpcId: &s.VPC, CidrBlock: aws.String("10.240.9.0/28"), AvailabilityZone: aws.String("us-east-1a")})).Subnet.SubnetId
	in := s.RunInput()
	in.SubnetId, in.InstanceType, in.MinCount, in.MaxCount = small, types.InstanceTypeT3Nano, aws.Int32(11), aws.Int32(11)
	cloudtest.Must[*awsec2.RunInstancesOutput](t)(l.RunInstances(ctx, in))
	v := cloudtest.Must[*awsec2.CreateVpcOutput](t)(l.CreateVpc(ctx, &awsec2.CreateVpcInput{CidrBlock: aws.String("10.0.0.0/16")})).Vpc.VpcId
	alone := cloudtest.Must[*awsec2.CreateSubnetOutput](t)(l.CreateSubnet(ctx, &awsec2.CreateSubnetInput{VpcId: v, CidrBlock: aws.String("10.0.0.0/24")})).Subnet.SubnetId
	for want, in := range map[string]awsec2.CreateNatGatewayInput{
		"Resource.AlreadyAssociated":        {SubnetId: &s.Subnet, AllocationId: eip.AllocationId},
		"InsufficientFreeAddressesInSubnet": {SubnetId: small, AllocationId: address(t, l).AllocationId},
		"Gateway.NotAttached":               {SubnetId: alone, AllocationId: address(t, l).AllocationId},
	} {
		g := cloudtest.Must[*awsec2.CreateNatGatewayOutput](t)(l.CreateNatGateway(ctx, &in)).NatGateway
		if g.State != types.NatGatewayStatePending || g.FailureCode != nil {
			t.Errorf("at first: %+v", g)
		}
		failed := settles(t, l, *g.NatGatewayId, types.NatGatewayStateFailed)
		if *failed.FailureCode != want || *failed.FailureMessage == "" {
			t.Errorf("failed: %+v, want %s", failed, want)
		}
		if err := deleteNATGateway(t, l, *g.NatGatewayId); err != nil {
			t.Errorf("a failed one cannot be deleted: %v", err)
		}
		settles(t, l, *g.NatGatewayId, types.NatGatewayStateDeleted)
	}
	if got := l.Instance(t, *i.InstanceId).PublicIpAddress; got == nil || *got != *eip.PublicIp {
		t.Errorf("a failed NAT gateway took the address from %v", got)
	}

	// A private one needs neither a gateway nor an address.
	private := cloudtest.Must[*awsec2.CreateNatGatewayOutput](t)(l.CreateNatGateway(ctx, &awsec2.CreateNatGatewayInput{SubnetId: alone, ConnectivityType: types.ConnectivityTypePrivate, PrivateIpAddress: aws.String("10.0.0.9")})).NatGateway
	if g := settles(t, l, *private.NatGatewayId, types.NatGatewayStateAvailable); *g.NatGatewayAddresses[0].PrivateIp != "10.0.0.9" || g.NatGatewayAddresses[0].PublicIp != nil {
		t.Errorf("private: %+v", g)
	}
}

func TestNATGatewayQuotaPagesAndOverview(t *testing.T) {
	l := cloudtest.New(t, func(l *cloudtest.Lab) { l.Quotas = ec2.Quotas{NATGatewaysPerZone: 1} })
	s := l.NewSite(t)
	ctx := t.Context()
	overview := func() (n struct {
		Total       int
		NATGateways []struct{ ID, User string } `json:"nat_gateways"`
		Addresses   []struct{ User string }
	}) {
		l.Control(t, http.MethodGet, "/_lab/state", nil, &n)
		return n
	}
	before := overview().Total
	id := *newNATGateway(t, l, s.Subnet).NatGatewayId
	if n := overview(); n.Total != before+3 || len(n.NATGateways) != 1 || n.NATGateways[0].User != s.Subnet || n.Addresses[0].User != id { // with its interface and its address
		t.Errorf("overview: %+v, before %d", n, before)
	}
	private := func(zone string, net int) error {
		subnet := cloudtest.Must[*awsec2.CreateSubnetOutput](t)(l.CreateSubnet(ctx, &awsec2.CreateSubnetInput{VpcId: &s.VPC, CidrBlock: aws.String(fmt.Sprintf("10.240.%d.0/24", net)), AvailabilityZone: &zone}))
		_, err := l.CreateNatGateway(ctx, &awsec2.CreateNatGatewayInput{SubnetId: subnet.Subnet.SubnetId, ConnectivityType: types.ConnectivityTypePrivate})
		return err
	}
	cloudtest.Refused(t, private("us-east-1a", 1), "NatGatewayLimitExceeded")
	if err := private("us-east-1b", 2); err != nil {
		t.Errorf("the quota is one of the zone: %v", err)
	}
	if err := deleteNATGateway(t, l, id); err != nil {
		t.Fatal(err)
	}
	cloudtest.Refused(t, private("us-east-1a", 3), "NatGatewayLimitExceeded") // it counts until it is deleted
	settles(t, l, id, types.NatGatewayStateDeleted)
	if n := overview(); len(n.NATGateways) != 1 || n.NATGateways[0].ID == id {
		t.Errorf("overview after the deletion: %+v", n)
	}
	for n := range 5 { // ended ones do not count
		if err := private("us-east-1a", 10+n); err != nil {
			t.Fatal(err)
		}
		all := cloudtest.Must[*awsec2.DescribeNatGatewaysOutput](t)(l.DescribeNatGateways(ctx, &awsec2.DescribeNatGatewaysInput{Filter: []types.Filter{cloudtest.Filter("state", "pending", "available")}})).NatGateways
		for _, g := range all {
			if err := deleteNATGateway(t, l, *g.NatGatewayId); err != nil {
				t.Fatal(err)
			}
			settles(t, l, *g.NatGatewayId, types.NatGatewayStateDeleted)
		}
	}
	page := cloudtest.Must[*awsec2.DescribeNatGatewaysOutput](t)(l.DescribeNatGateways(ctx, &awsec2.DescribeNatGatewaysInput{MaxResults: aws.Int32(5)}))
	rest := cloudtest.Must[*awsec2.DescribeNatGatewaysOutput](t)(l.DescribeNatGateways(ctx, &awsec2.DescribeNatGatewaysInput{MaxResults: aws.Int32(5), NextToken: page.NextToken}))
	if len(page.NatGateways) != 5 || len(rest.NatGateways) != 2 || rest.NextToken != nil {
		t.Errorf("pages of %d and %d", len(page.NatGateways), len(rest.NatGateways))
	}
}

func TestNATGatewayRoutes(t *testing.T) {
	l := cloudtest.New(t)
	s := l.NewSite(t)
	ctx := t.Context()
	table := cloudtest.Must[*awsec2.CreateRouteTableOutput](t)(l.CreateRouteTable(ctx, &awsec2.CreateRouteTableInput{VpcId: &s.VPC})).RouteTable.RouteTableId
	pending := cloudtest.Must[*awsec2.CreateNatGatewayOutput](t)(l.CreateNatGateway(ctx, &awsec2.CreateNatGatewayInput{SubnetId: &s.Subnet, AllocationId: address(t, l).AllocationId})).NatGateway
	id := *pending.NatGatewayId
	create := func(nat string) error {
		_, err := l.CreateRoute(ctx, &awsec2.CreateRouteInput{RouteTableId: table, DestinationCidrBlock: aws.String("0.0.0.0/0"), NatGatewayId: &nat})
		return err
	}
	cloudtest.Refused(t, create(id), "InvalidNatGatewayID.NotFound")
	cloudtest.Refused(t, create("nat-00000000000000000"), "InvalidNatGatewayID.NotFound")
	cloudtest.Refused(t, create("mine"), "NatGatewayMalformed")
	g := settles(t, l, id, types.NatGatewayStateAvailable)
	eni := *g.NatGatewayAddresses[0].NetworkInterfaceId
	if err := create(id); err != nil {
		t.Fatal(err)
	}
	_, err := l.CreateRoute(ctx, &awsec2.CreateRouteInput{RouteTableId: table, DestinationCidrBlock: aws.String("10.9.0.0/16"), NatGatewayId: &id, GatewayId: &s.Gateway})
	cloudtest.Refused(t, err, "InvalidParameterCombination")
	route := func() types.Route {
		t.Helper()
		found := cloudtest.Must[*awsec2.DescribeRouteTablesOutput](t)(l.DescribeRouteTables(ctx, &awsec2.DescribeRouteTablesInput{Filters: []types.Filter{cloudtest.Filter("route.nat-gateway-id", id)}})).RouteTables
		if len(found) != 1 || *found[0].RouteTableId != *table {
			t.Fatalf("found %+v", found)
		}
		return found[0].Routes[1]
	}
	if r := route(); *r.NatGatewayId != id || r.State != types.RouteStateActive || r.GatewayId != nil {
		t.Errorf("route: %+v", r)
	}
	target := func() network.Target {
		for _, r := range l.Network.VPC(t, s.VPC).RouteTables {
			if r.ID == *table {
				return r.Routes[1].Target
			}
		}
		return network.Target{}
	}
	forwards := func() bool {
		for _, i := range l.Network.VPC(t, s.VPC).Interfaces {
			if i.ID == eni {
				return i.NATGateway && !i.Stopped && !i.SourceDestCheck
			}
		}
		return false
	}
	if got := target(); got.Kind != network.ToInterface || got.InterfaceID != eni || !forwards() {
		t.Errorf("the network gets %+v, and it forwards: %v", got, forwards())
	}

	other := cloudtest.Must[*awsec2.CreateVpcOutput](t)(l.CreateVpc(ctx, &awsec2.CreateVpcInput{CidrBlock: aws.String("10.0.0.0/16")})).Vpc.VpcId
	elsewhere := cloudtest.Must[*awsec2.CreateRouteTableOutput](t)(l.CreateRouteTable(ctx, &awsec2.CreateRouteTableInput{VpcId: other})).RouteTable.RouteTableId
	_, err = l.CreateRoute(ctx, &awsec2.CreateRouteInput{RouteTableId: elsewhere, DestinationCidrBlock: aws.String("0.0.0.0/0"), NatGatewayId: &id})
	cloudtest.Refused(t, err, "InvalidParameterValue")

	if err := deleteNATGateway(t, l, id); err != nil {
		t.Fatal(err)
	}
	for _, state := range []types.NatGatewayState{types.NatGatewayStateDeleting, types.NatGatewayStateDeleted} {
		if state == types.NatGatewayStateDeleted {
			settles(t, l, id, state)
		}
		if r := route(); r.State != types.RouteStateBlackhole || target().Kind != network.Blackhole || forwards() {
			t.Errorf("%s: %+v, forwards %v", state, r, forwards())
		}
	}
	next := *newNATGateway(t, l, s.Subnet).NatGatewayId
	cloudtest.Must[*awsec2.ReplaceRouteOutput](t)(l.ReplaceRoute(ctx, &awsec2.ReplaceRouteInput{RouteTableId: table, DestinationCidrBlock: aws.String("0.0.0.0/0"), NatGatewayId: &next}))
	id = next
	if r := route(); r.State != types.RouteStateActive {
		t.Errorf("replaced: %+v", r)
	}
}

// TestNATGatewayResumes checks that a restarted daemon goes on, with tags and eventual consistency as of
// other resources.
func TestNATGatewayResumes(t *testing.T) {
	l := cloudtest.New(t)
	s := l.NewSite(t)
	ctx := t.Context()
	l.Fault(t, cloudtest.Fields{"kind": "eventual", "action": "CreateNatGateway", "calls": 1})
	id := *cloudtest.Must[*awsec2.CreateNatGatewayOutput](t)(l.CreateNatGateway(ctx, &awsec2.CreateNatGatewayInput{SubnetId: &s.Subnet, AllocationId: address(t, l).AllocationId})).NatGateway.NatGatewayId
	tag := func() error {
		_, err := l.CreateTags(ctx, &awsec2.CreateTagsInput{Resources: []string{id}, Tags: []types.Tag{{Key: aws.String("a"), Value: aws.String("b")}}})
		return err
	}
	cloudtest.Refused(t, tag(), "NatGatewayNotFound")
	if err := tag(); err != nil {
		t.Fatal(err)
	}
	tagged := cloudtest.Must[*awsec2.DescribeTagsOutput](t)(l.DescribeTags(ctx, &awsec2.DescribeTagsInput{Filters: []types.Filter{cloudtest.Filter("resource-type", "natgateway")}})).Tags
	if len(tagged) != 1 || *tagged[0].ResourceId != id {
		t.Errorf("tags: %+v", tagged)
	}
	l.Account.Close()
	l.Open(t)
	settles(t, l, id, types.NatGatewayStateAvailable)
	if err := deleteNATGateway(t, l, id); err != nil {
		t.Fatal(err)
	}
	l.Account.Close()
	l.Open(t)
	settles(t, l, id, types.NatGatewayStateDeleted)
}
