package cloud_test

import (
	"fmt"
	"net/http"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	awsec2 "github.com/aws/aws-sdk-go-v2/service/ec2"
	"github.com/aws/aws-sdk-go-v2/service/ec2/types"

	"github.com/k8s-from-scratch/terraform-provider-k8s/internal/lab/cloud/ec2"
	"github.com/k8s-from-scratch/terraform-provider-k8s/internal/lab/network"
)

func (l *lab) address(t *testing.T) *awsec2.AllocateAddressOutput {
	t.Helper()
	return must[*awsec2.AllocateAddressOutput](t)(l.AllocateAddress(t.Context(), &awsec2.AllocateAddressInput{}))
}

func (l *lab) natGateway(t *testing.T, id string) types.NatGateway {
	t.Helper()
	return must[*awsec2.DescribeNatGatewaysOutput](t)(l.DescribeNatGateways(t.Context(), &awsec2.DescribeNatGatewaysInput{NatGatewayIds: []string{id}})).NatGateways[0]
}

// settles waits until a NAT gateway has a state, some seconds later.
func (l *lab) settles(t *testing.T, id string, want types.NatGatewayState) types.NatGateway {
	t.Helper()
	l.clock.advance(2 * time.Second)
	eventually(t, id+" is "+string(want), func() bool { return l.natGateway(t, id).State == want })
	return l.natGateway(t, id)
}

// newNATGateway makes an available one.
func (l *lab) newNATGateway(t *testing.T, subnet string) types.NatGateway {
	t.Helper()
	out := must[*awsec2.CreateNatGatewayOutput](t)(l.CreateNatGateway(t.Context(), &awsec2.CreateNatGatewayInput{SubnetId: &subnet, AllocationId: l.address(t).AllocationId}))
	return l.settles(t, *out.NatGateway.NatGatewayId, types.NatGatewayStateAvailable)
}

func (l *lab) deleteNATGateway(t *testing.T, id string) error {
	t.Helper()
	_, err := l.DeleteNatGateway(t.Context(), &awsec2.DeleteNatGatewayInput{NatGatewayId: &id})
	return err
}

func TestNATGatewayLife(t *testing.T) {
	l := newLab(t)
	s := l.site(t)
	ctx := t.Context()
	eip := l.address(t)
	in := &awsec2.CreateNatGatewayInput{
		SubnetId: &s.subnet, AllocationId: eip.AllocationId, ClientToken: aws.String("once"), TagSpecifications: tags(types.ResourceTypeNatgateway, "Name", "nat"),
	}
	made := must[*awsec2.CreateNatGatewayOutput](t)(l.CreateNatGateway(ctx, in))
	g := *made.NatGateway
	id := *g.NatGatewayId
	if g.State != types.NatGatewayStatePending || g.ConnectivityType != types.ConnectivityTypePublic || *g.VpcId != s.vpc || *made.ClientToken != "once" {
		t.Errorf("made: %+v", g)
	}
	if again := must[*awsec2.CreateNatGatewayOutput](t)(l.CreateNatGateway(ctx, in)); *again.NatGateway.NatGatewayId != id {
		t.Error("the same token made another NAT gateway")
	}
	in.SubnetId = aws.String("subnet-00000000000000000")
	_, err := l.CreateNatGateway(ctx, in)
	refused(t, err, "IdempotentParameterMismatch")

	g = l.settles(t, id, types.NatGatewayStateAvailable)
	a := g.NatGatewayAddresses[0]
	if *a.PublicIp != *eip.PublicIp || *a.AllocationId != *eip.AllocationId || a.Status != types.NatGatewayAddressStatusSucceeded || !*a.IsPrimary {
		t.Errorf("its address: %+v", a)
	}
	for name, value := range map[string]string{"nat-gateway-id": id, "vpc-id": s.vpc, "subnet-id": s.subnet, "state": "available", "tag:Name": "nat", "tag-key": "Name"} {
		for want, value := range map[int]string{1: value, 0: "other"} {
			found := must[*awsec2.DescribeNatGatewaysOutput](t)(l.DescribeNatGateways(ctx, &awsec2.DescribeNatGatewaysInput{Filter: []types.Filter{filter(name, value)}})).NatGateways
			if len(found) != want {
				t.Errorf("filter %s=%s finds %d", name, value, len(found))
			}
		}
	}
	e := must[*awsec2.DescribeNetworkInterfacesOutput](t)(l.DescribeNetworkInterfaces(ctx, &awsec2.DescribeNetworkInterfacesInput{Filters: []types.Filter{filter("interface-type", "nat_gateway"), filter("requester-managed", "true")}})).NetworkInterfaces
	if len(e) != 1 || *e[0].NetworkInterfaceId != *a.NetworkInterfaceId || e[0].Status != types.NetworkInterfaceStatusInUse || *e[0].SourceDestCheck || len(e[0].Groups) != 0 ||
		*e[0].Association.PublicIp != *eip.PublicIp || *e[0].Description != "Interface for NAT Gateway "+id || e[0].InterfaceType != "nat_gateway" {
		t.Errorf("its interface: %+v", e)
	}

	// It holds what it uses.
	_, err = l.DeleteSubnet(ctx, &awsec2.DeleteSubnetInput{SubnetId: &s.subnet})
	refused(t, err, "DependencyViolation")
	_, err = l.DetachInternetGateway(ctx, &awsec2.DetachInternetGatewayInput{InternetGatewayId: &s.gateway, VpcId: &s.vpc})
	refused(t, err, "DependencyViolation")
	_, err = l.ReleaseAddress(ctx, &awsec2.ReleaseAddressInput{AllocationId: eip.AllocationId})
	refused(t, err, "InvalidIPAddress.InUse")
	_, err = l.DisassociateAddress(ctx, &awsec2.DisassociateAddressInput{AssociationId: a.AssociationId})
	refused(t, err, "AuthFailure")
	_, err = l.AssociateAddress(ctx, &awsec2.AssociateAddressInput{AllocationId: l.address(t).AllocationId, NetworkInterfaceId: a.NetworkInterfaceId})
	refused(t, err, "AuthFailure")
	_, err = l.AssociateAddress(ctx, &awsec2.AssociateAddressInput{AllocationId: eip.AllocationId, InstanceId: l.run(t, s.runInput()).InstanceId})
	refused(t, err, "AuthFailure")
	_, err = l.DeleteNetworkInterface(ctx, &awsec2.DeleteNetworkInterfaceInput{NetworkInterfaceId: a.NetworkInterfaceId})
	refused(t, err, "InvalidNetworkInterface.InUse")

	if err := l.deleteNATGateway(t, id); err != nil {
		t.Fatal(err)
	}
	if g := l.natGateway(t, id); g.State != types.NatGatewayStateDeleting || g.DeleteTime == nil {
		t.Errorf("while it is deleted: %+v", g)
	}
	_, err = l.ReleaseAddress(ctx, &awsec2.ReleaseAddressInput{AllocationId: eip.AllocationId})
	refused(t, err, "InvalidIPAddress.InUse")
	if err := l.deleteNATGateway(t, id); err != nil {
		t.Errorf("deleted again: %v", err)
	}
	g = l.settles(t, id, types.NatGatewayStateDeleted)
	if *g.NatGatewayAddresses[0].PublicIp != *eip.PublicIp || *g.Tags[0].Value != "nat" {
		t.Errorf("deleted: %+v", g)
	}
	after := must[*awsec2.DescribeAddressesOutput](t)(l.DescribeAddresses(ctx, &awsec2.DescribeAddressesInput{AllocationIds: []string{*eip.AllocationId}})).Addresses[0]
	if after.AssociationId != nil {
		t.Errorf("its address is still associated: %+v", after)
	}
	must[*awsec2.ReleaseAddressOutput](t)(l.ReleaseAddress(ctx, &awsec2.ReleaseAddressInput{AllocationId: eip.AllocationId}))
	refused(t, l.deleteNATGateway(t, id), "NatGatewayNotFound")
	in.SubnetId = &s.subnet
	if again := must[*awsec2.CreateNatGatewayOutput](t)(l.CreateNatGateway(ctx, in)).NatGateway; *again.NatGatewayId != id || again.State != types.NatGatewayStateDeleted {
		t.Errorf("after the deletion the token gives %+v", again)
	}
	l.clock.advance(time.Hour)
	l.natGateway(t, id)
	l.clock.advance(time.Second)
	_, err = l.DescribeNatGateways(ctx, &awsec2.DescribeNatGatewaysInput{NatGatewayIds: []string{id}})
	refused(t, err, "NatGatewayNotFound")
}

// TestNATGatewayFails checks what is refused at once, and what a NAT gateway fails of while it is pending.
func TestNATGatewayFails(t *testing.T) {
	l := newLab(t)
	s := l.site(t)
	ctx := t.Context()
	eip := l.address(t)
	const unknown = "00000000000000000"
	for _, tc := range []struct {
		in   awsec2.CreateNatGatewayInput
		want string
	}{
		{awsec2.CreateNatGatewayInput{AllocationId: eip.AllocationId}, "MissingParameter"},
		{awsec2.CreateNatGatewayInput{SubnetId: &s.subnet}, "MissingParameter"},
		{awsec2.CreateNatGatewayInput{SubnetId: aws.String("subnet-" + unknown), AllocationId: eip.AllocationId}, "InvalidSubnet"},
		{awsec2.CreateNatGatewayInput{SubnetId: aws.String("here"), AllocationId: eip.AllocationId}, "InvalidSubnet"},
		{awsec2.CreateNatGatewayInput{SubnetId: &s.subnet, AllocationId: aws.String("eipalloc-" + unknown)}, "InvalidElasticIpID.NotFound"},
		{awsec2.CreateNatGatewayInput{SubnetId: &s.subnet, AllocationId: aws.String("mine")}, "InvalidElasticIpID.Malformed"},
		{awsec2.CreateNatGatewayInput{SubnetId: &s.subnet, AllocationId: eip.AllocationId, ConnectivityType: types.ConnectivityTypePrivate}, "InvalidParameterCombination"},
		{awsec2.CreateNatGatewayInput{SubnetId: &s.subnet, AllocationId: eip.AllocationId, ConnectivityType: "both"}, "InvalidParameterValue"},
		{awsec2.CreateNatGatewayInput{SubnetId: &s.subnet, AllocationId: eip.AllocationId, PrivateIpAddress: aws.String("10.0.0.9")}, "InvalidParameterValue"},
		{awsec2.CreateNatGatewayInput{SubnetId: &s.subnet, AllocationId: eip.AllocationId, DryRun: aws.Bool(true)}, "DryRunOperation"},
		{awsec2.CreateNatGatewayInput{SubnetId: &s.subnet, AllocationId: eip.AllocationId, TagSpecifications: tags(types.ResourceTypeVpc, "a", "b")}, "InvalidParameterValue"},
	} {
		_, err := l.CreateNatGateway(ctx, &tc.in)
		refused(t, err, tc.want)
	}
	if all := must[*awsec2.DescribeNatGatewaysOutput](t)(l.DescribeNatGateways(ctx, &awsec2.DescribeNatGatewaysInput{})).NatGateways; len(all) != 0 {
		t.Errorf("refused calls left %+v", all)
	}
	_, err := l.DescribeNatGateways(ctx, &awsec2.DescribeNatGatewaysInput{NatGatewayIds: []string{"mine"}})
	refused(t, err, "NatGatewayMalformed")
	refused(t, l.deleteNATGateway(t, "nat-"+unknown), "NatGatewayNotFound")

	i := l.run(t, s.runInput())
	must[*awsec2.AssociateAddressOutput](t)(l.AssociateAddress(ctx, &awsec2.AssociateAddressInput{AllocationId: eip.AllocationId, InstanceId: i.InstanceId}))
	small := must[*awsec2.CreateSubnetOutput](t)(l.CreateSubnet(ctx, &awsec2.CreateSubnetInput{VpcId: &s.vpc, CidrBlock: aws.String("10.240.9.0/28"), AvailabilityZone: aws.String("us-east-1a")})).Subnet.SubnetId
	in := s.runInput()
	in.SubnetId, in.InstanceType, in.MinCount, in.MaxCount = small, types.InstanceTypeT3Nano, aws.Int32(11), aws.Int32(11)
	must[*awsec2.RunInstancesOutput](t)(l.RunInstances(ctx, in))
	v := must[*awsec2.CreateVpcOutput](t)(l.CreateVpc(ctx, &awsec2.CreateVpcInput{CidrBlock: aws.String("10.0.0.0/16")})).Vpc.VpcId
	alone := must[*awsec2.CreateSubnetOutput](t)(l.CreateSubnet(ctx, &awsec2.CreateSubnetInput{VpcId: v, CidrBlock: aws.String("10.0.0.0/24")})).Subnet.SubnetId
	for want, in := range map[string]awsec2.CreateNatGatewayInput{
		"Resource.AlreadyAssociated":        {SubnetId: &s.subnet, AllocationId: eip.AllocationId},
		"InsufficientFreeAddressesInSubnet": {SubnetId: small, AllocationId: l.address(t).AllocationId},
		"Gateway.NotAttached":               {SubnetId: alone, AllocationId: l.address(t).AllocationId},
	} {
		g := must[*awsec2.CreateNatGatewayOutput](t)(l.CreateNatGateway(ctx, &in)).NatGateway
		if g.State != types.NatGatewayStatePending || g.FailureCode != nil {
			t.Errorf("at first: %+v", g)
		}
		failed := l.settles(t, *g.NatGatewayId, types.NatGatewayStateFailed)
		if *failed.FailureCode != want || *failed.FailureMessage == "" {
			t.Errorf("failed: %+v, want %s", failed, want)
		}
		if err := l.deleteNATGateway(t, *g.NatGatewayId); err != nil {
			t.Errorf("a failed one cannot be deleted: %v", err)
		}
		l.settles(t, *g.NatGatewayId, types.NatGatewayStateDeleted)
	}
	if got := l.instance(t, *i.InstanceId).PublicIpAddress; got == nil || *got != *eip.PublicIp {
		t.Errorf("a failed NAT gateway took the address from %v", got)
	}

	// A private one needs neither a gateway nor an address.
	private := must[*awsec2.CreateNatGatewayOutput](t)(l.CreateNatGateway(ctx, &awsec2.CreateNatGatewayInput{SubnetId: alone, ConnectivityType: types.ConnectivityTypePrivate, PrivateIpAddress: aws.String("10.0.0.9")})).NatGateway
	if g := l.settles(t, *private.NatGatewayId, types.NatGatewayStateAvailable); *g.NatGatewayAddresses[0].PrivateIp != "10.0.0.9" || g.NatGatewayAddresses[0].PublicIp != nil {
		t.Errorf("private: %+v", g)
	}
}

func TestNATGatewayQuotaPagesAndOverview(t *testing.T) {
	l := newLab(t, func(l *lab) { l.quotas = ec2.Quotas{NATGatewaysPerZone: 1} })
	s := l.site(t)
	ctx := t.Context()
	overview := func() (n struct {
		Total       int
		NATGateways []struct{ ID, User string } `json:"nat_gateways"`
		Addresses   []struct{ User string }
	}) {
		l.control(t, http.MethodGet, "/_lab/state", nil, &n)
		return n
	}
	before := overview().Total
	id := *l.newNATGateway(t, s.subnet).NatGatewayId
	if n := overview(); n.Total != before+3 || len(n.NATGateways) != 1 || n.NATGateways[0].User != s.subnet || n.Addresses[0].User != id { // with its interface and its address
		t.Errorf("overview: %+v, before %d", n, before)
	}
	private := func(zone string, net int) error {
		subnet := must[*awsec2.CreateSubnetOutput](t)(l.CreateSubnet(ctx, &awsec2.CreateSubnetInput{VpcId: &s.vpc, CidrBlock: aws.String(fmt.Sprintf("10.240.%d.0/24", net)), AvailabilityZone: &zone}))
		_, err := l.CreateNatGateway(ctx, &awsec2.CreateNatGatewayInput{SubnetId: subnet.Subnet.SubnetId, ConnectivityType: types.ConnectivityTypePrivate})
		return err
	}
	refused(t, private("us-east-1a", 1), "NatGatewayLimitExceeded")
	if err := private("us-east-1b", 2); err != nil {
		t.Errorf("the quota is one of the zone: %v", err)
	}
	if err := l.deleteNATGateway(t, id); err != nil {
		t.Fatal(err)
	}
	refused(t, private("us-east-1a", 3), "NatGatewayLimitExceeded") // it counts until it is deleted
	l.settles(t, id, types.NatGatewayStateDeleted)
	if n := overview(); len(n.NATGateways) != 1 || n.NATGateways[0].ID == id {
		t.Errorf("overview after the deletion: %+v", n)
	}
	for n := range 5 { // ended ones do not count
		if err := private("us-east-1a", 10+n); err != nil {
			t.Fatal(err)
		}
		all := must[*awsec2.DescribeNatGatewaysOutput](t)(l.DescribeNatGateways(ctx, &awsec2.DescribeNatGatewaysInput{Filter: []types.Filter{filter("state", "pending", "available")}})).NatGateways
		for _, g := range all {
			if err := l.deleteNATGateway(t, *g.NatGatewayId); err != nil {
				t.Fatal(err)
			}
			l.settles(t, *g.NatGatewayId, types.NatGatewayStateDeleted)
		}
	}
	page := must[*awsec2.DescribeNatGatewaysOutput](t)(l.DescribeNatGateways(ctx, &awsec2.DescribeNatGatewaysInput{MaxResults: aws.Int32(5)}))
	rest := must[*awsec2.DescribeNatGatewaysOutput](t)(l.DescribeNatGateways(ctx, &awsec2.DescribeNatGatewaysInput{MaxResults: aws.Int32(5), NextToken: page.NextToken}))
	if len(page.NatGateways) != 5 || len(rest.NatGateways) != 2 || rest.NextToken != nil {
		t.Errorf("pages of %d and %d", len(page.NatGateways), len(rest.NatGateways))
	}
}

func TestNATGatewayRoutes(t *testing.T) {
	l := newLab(t)
	s := l.site(t)
	ctx := t.Context()
	table := must[*awsec2.CreateRouteTableOutput](t)(l.CreateRouteTable(ctx, &awsec2.CreateRouteTableInput{VpcId: &s.vpc})).RouteTable.RouteTableId
	pending := must[*awsec2.CreateNatGatewayOutput](t)(l.CreateNatGateway(ctx, &awsec2.CreateNatGatewayInput{SubnetId: &s.subnet, AllocationId: l.address(t).AllocationId})).NatGateway
	id := *pending.NatGatewayId
	create := func(nat string) error {
		_, err := l.CreateRoute(ctx, &awsec2.CreateRouteInput{RouteTableId: table, DestinationCidrBlock: aws.String("0.0.0.0/0"), NatGatewayId: &nat})
		return err
	}
	refused(t, create(id), "InvalidNatGatewayID.NotFound")
	refused(t, create("nat-00000000000000000"), "InvalidNatGatewayID.NotFound")
	refused(t, create("mine"), "NatGatewayMalformed")
	g := l.settles(t, id, types.NatGatewayStateAvailable)
	eni := *g.NatGatewayAddresses[0].NetworkInterfaceId
	if err := create(id); err != nil {
		t.Fatal(err)
	}
	_, err := l.CreateRoute(ctx, &awsec2.CreateRouteInput{RouteTableId: table, DestinationCidrBlock: aws.String("10.9.0.0/16"), NatGatewayId: &id, GatewayId: &s.gateway})
	refused(t, err, "InvalidParameterCombination")
	route := func() types.Route {
		t.Helper()
		found := must[*awsec2.DescribeRouteTablesOutput](t)(l.DescribeRouteTables(ctx, &awsec2.DescribeRouteTablesInput{Filters: []types.Filter{filter("route.nat-gateway-id", id)}})).RouteTables
		if len(found) != 1 || *found[0].RouteTableId != *table {
			t.Fatalf("found %+v", found)
		}
		return found[0].Routes[1]
	}
	if r := route(); *r.NatGatewayId != id || r.State != types.RouteStateActive || r.GatewayId != nil {
		t.Errorf("route: %+v", r)
	}
	target := func() network.Target {
		for _, r := range l.network.vpc(t, s.vpc).RouteTables {
			if r.ID == *table {
				return r.Routes[1].Target
			}
		}
		return network.Target{}
	}
	forwards := func() bool {
		for _, i := range l.network.vpc(t, s.vpc).Interfaces {
			if i.ID == eni {
				return i.NATGateway && !i.Stopped && !i.SourceDestCheck
			}
		}
		return false
	}
	if got := target(); got.Kind != network.ToInterface || got.InterfaceID != eni || !forwards() {
		t.Errorf("the network gets %+v, and it forwards: %v", got, forwards())
	}

	other := must[*awsec2.CreateVpcOutput](t)(l.CreateVpc(ctx, &awsec2.CreateVpcInput{CidrBlock: aws.String("10.0.0.0/16")})).Vpc.VpcId
	elsewhere := must[*awsec2.CreateRouteTableOutput](t)(l.CreateRouteTable(ctx, &awsec2.CreateRouteTableInput{VpcId: other})).RouteTable.RouteTableId
	_, err = l.CreateRoute(ctx, &awsec2.CreateRouteInput{RouteTableId: elsewhere, DestinationCidrBlock: aws.String("0.0.0.0/0"), NatGatewayId: &id})
	refused(t, err, "InvalidParameterValue")

	if err := l.deleteNATGateway(t, id); err != nil {
		t.Fatal(err)
	}
	for _, state := range []types.NatGatewayState{types.NatGatewayStateDeleting, types.NatGatewayStateDeleted} {
		if state == types.NatGatewayStateDeleted {
			l.settles(t, id, state)
		}
		if r := route(); r.State != types.RouteStateBlackhole || target().Kind != network.Blackhole || forwards() {
			t.Errorf("%s: %+v, forwards %v", state, r, forwards())
		}
	}
	next := *l.newNATGateway(t, s.subnet).NatGatewayId
	must[*awsec2.ReplaceRouteOutput](t)(l.ReplaceRoute(ctx, &awsec2.ReplaceRouteInput{RouteTableId: table, DestinationCidrBlock: aws.String("0.0.0.0/0"), NatGatewayId: &next}))
	id = next
	if r := route(); r.State != types.RouteStateActive {
		t.Errorf("replaced: %+v", r)
	}
}

// TestNATGatewayResumes checks that a restarted daemon goes on, with tags and eventual consistency as of
// other resources.
func TestNATGatewayResumes(t *testing.T) {
	l := newLab(t)
	s := l.site(t)
	ctx := t.Context()
	l.fault(t, fields{"kind": "eventual", "action": "CreateNatGateway", "calls": 1})
	id := *must[*awsec2.CreateNatGatewayOutput](t)(l.CreateNatGateway(ctx, &awsec2.CreateNatGatewayInput{SubnetId: &s.subnet, AllocationId: l.address(t).AllocationId})).NatGateway.NatGatewayId
	tag := func() error {
		_, err := l.CreateTags(ctx, &awsec2.CreateTagsInput{Resources: []string{id}, Tags: []types.Tag{{Key: aws.String("a"), Value: aws.String("b")}}})
		return err
	}
	refused(t, tag(), "NatGatewayNotFound")
	if err := tag(); err != nil {
		t.Fatal(err)
	}
	tagged := must[*awsec2.DescribeTagsOutput](t)(l.DescribeTags(ctx, &awsec2.DescribeTagsInput{Filters: []types.Filter{filter("resource-type", "natgateway")}})).Tags
	if len(tagged) != 1 || *tagged[0].ResourceId != id {
		t.Errorf("tags: %+v", tagged)
	}
	l.cloud.Close()
	l.open(t)
	l.settles(t, id, types.NatGatewayStateAvailable)
	if err := l.deleteNATGateway(t, id); err != nil {
		t.Fatal(err)
	}
	l.cloud.Close()
	l.open(t)
	l.settles(t, id, types.NatGatewayStateDeleted)
}
