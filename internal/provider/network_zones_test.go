package provider

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	sdk "github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/ec2"
	"github.com/aws/aws-sdk-go-v2/service/ec2/types"

	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/remote"
)

// zonesConfig is a network in zones that offer every type of the local EC2 of these tests.
func zonesConfig(more values) values {
	return with(networkConfig(), with(values{"instance_types": []any{"m5.large"}}, more))
}

// layout describes the subnets of a network as EC2 has them: name, network, zone, whether machines get a
// public address, and where the default route leads.
func (c cloud) layout(t *testing.T, network *instance) string {
	t.Helper()
	vpc := []types.Filter{{Name: sdk.String("vpc-id"), Values: []string{network.get("vpc_id").(string)}}}
	subnets := answer[*ec2.DescribeSubnetsOutput](t)(c.client.EC2.DescribeSubnets(t.Context(), &ec2.DescribeSubnetsInput{Filters: vpc})).Subnets
	tables := answer[*ec2.DescribeRouteTablesOutput](t)(c.client.EC2.DescribeRouteTables(t.Context(), &ec2.DescribeRouteTablesInput{Filters: vpc})).RouteTables
	names := map[string]string{}
	for _, n := range c.nats(t, network) {
		names[*n.NatGatewayId] = nameTag(n.Tags)
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
		lines = append(lines, fmt.Sprintf("%s %s %s %t %s", nameTag(s.Tags), *s.CidrBlock, *s.AvailabilityZone, *s.MapPublicIpOnLaunch, to))
	}
	slices.Sort(lines)
	return strings.Join(lines, "\n")
}

// nats returns the NAT gateways of a network that are not gone.
func (c cloud) nats(t *testing.T, network *instance) []types.NatGateway {
	t.Helper()
	out := answer[*ec2.DescribeNatGatewaysOutput](t)(c.client.EC2.DescribeNatGateways(t.Context(), &ec2.DescribeNatGatewaysInput{
		Filter: []types.Filter{{Name: sdk.String("vpc-id"), Values: []string{network.get("vpc_id").(string)}}, {Name: sdk.String("state"), Values: []string{"pending", "available"}}},
	}))
	return out.NatGateways
}

func nameTag(tags []types.Tag) string {
	for _, tag := range tags {
		if sdk.ToString(tag.Key) == "Name" {
			return sdk.ToString(tag.Value)
		}
	}
	return "nameless"
}

// addresses returns the number of Elastic IPs.
func (c cloud) addresses(t *testing.T) int {
	t.Helper()
	return len(answer[*ec2.DescribeAddressesOutput](t)(c.client.EC2.DescribeAddresses(t.Context(), &ec2.DescribeAddressesInput{})).Addresses)
}

const publicLayout = `demo-node-0 10.240.0.0/24 us-east-1a true igw
demo-node-1 10.240.1.0/24 us-east-1b true igw
demo-node-2 10.240.2.0/24 us-east-1c true igw`

// TestZones makes a network in several zones, adds one and takes it away.
func TestZones(t *testing.T) {
	t.Parallel()
	c := newCloud(t)
	network := c.instance("k8s_network")
	two, three := zonesConfig(values{"zone_count": 2}), zonesConfig(values{"zone_count": 3})
	network.must(two)
	network.settled(two)
	first, _, _ := strings.Cut(publicLayout, "\ndemo-node-2")
	if got := c.layout(t, network); got != first {
		t.Errorf("two zones:\n%s", got)
	}
	worker := c.instance("k8s_machine")
	machine := with(workerConfig(network), values{"private_ip": "10.240.1.20"})
	worker.must(machine)
	subnet := worker.get("subnet_id")
	if zone := worker.get("availability_zone"); zone != "us-east-1b" {
		t.Errorf("the address of the second zone is in %v", zone)
	}

	network.must(three)
	network.settled(three)
	if got := c.layout(t, network); got != publicLayout {
		t.Errorf("three zones:\n%s", got)
	}
	if got := fmt.Sprint(network.get("node_cidrs"), network.get("availability_zones")); got != "[10.240.0.0/24 10.240.1.0/24 10.240.2.0/24] [us-east-1a us-east-1b us-east-1c]" {
		t.Error(got)
	}
	machine["network"] = network.get("ref")
	if ch := worker.plan(machine); len(ch.errors) > 0 || len(ch.replace) > 0 {
		t.Errorf("another zone: %s, replaced for %v", ch.failure(), ch.replace)
	}
	worker.must(machine)
	if worker.get("subnet_id") != subnet {
		t.Error("the machine has moved")
	}

	network.must(two)
	network.settled(two)
	if got := c.layout(t, network); got != first {
		t.Errorf("two zones again:\n%s", got)
	}
	named := zonesConfig(values{"availability_zones": []any{"us-east-1a", "us-east-1b"}})
	network.settled(named)
	if ch := network.plan(zonesConfig(values{"availability_zones": []any{"us-east-1b", "us-east-1a"}})); len(ch.replace) == 0 {
		t.Error("zones that change places do not replace the network")
	}

	again := c.ends(t).instance("k8s_network")
	again.imports("demo")
	again.settled(with(two, values{"instance_types": nil}))
}

// TestPrivateSubnets makes private subnets behind NAT gateways, damages and changes them.
func TestPrivateSubnets(t *testing.T) {
	t.Parallel()
	c := newCloud(t)
	c.reached = func(remote.Host) {}
	c.ssh = values{"private_key": c.key, "bastion": values{"address": "192.0.2.1", "host_keys": []any{publicKey(t)}}}
	c = c.process(t)
	network := c.instance("k8s_network")
	one, each := zonesConfig(values{"zone_count": 2, "nat_gateways": "one"}), zonesConfig(values{"zone_count": 2, "nat_gateways": "per_zone"})
	const public = `
demo-public-0 10.240.128.0/24 us-east-1a true igw
demo-public-1 10.240.129.0/24 us-east-1b true igw`
	const shared = `demo-node-0 10.240.0.0/24 us-east-1a false demo-nat-0
demo-node-1 10.240.1.0/24 us-east-1b false demo-nat-0` + public
	const separate = `demo-node-0 10.240.0.0/24 us-east-1a false demo-nat-0
demo-node-1 10.240.1.0/24 us-east-1b false demo-nat-1` + public
	is := func(when, want string, gateways int) {
		t.Helper()
		if got := c.layout(t, network); got != want {
			t.Errorf("%s:\n%s\nwanted\n%s", when, got, want)
		}
		ips, _ := network.get("nat_ips").(values)
		if n := len(c.nats(t, network)); n != gateways || c.addresses(t) != gateways || len(ips) != gateways {
			t.Errorf("%s: %d NAT gateways, %d addresses, nat_ips %v", when, n, c.addresses(t), ips)
		}
	}
	network.must(one)
	network.settled(one)
	is("one", shared, 1)
	network.must(each)
	network.settled(each)
	is("per_zone", separate, 2)
	was := maps.Clone(network.get("nat_ips").(values))

	t.Run("machines", func(t *testing.T) {
		for _, tc := range []struct {
			name, refused, zone, cidr string
			more                      values
		}{
			{"private, by default", "", "us-east-1a", "10.240.0.", values{"associate_public_ip_address": false}},
			{"private, by zone", "", "us-east-1b", "10.240.1.", values{"associate_public_ip_address": false, "availability_zone": "us-east-1b"}},
			{"public, by zone", "", "us-east-1b", "10.240.129.", values{"availability_zone": "us-east-1b"}},
			{"by subnet", "", "us-east-1b", "10.240.1.", values{"associate_public_ip_address": false, "subnet_id": network.get("subnet_ids").([]any)[1]}},
			{"by address", "", "us-east-1b", "10.240.1.44", values{"associate_public_ip_address": false, "private_ip": "10.240.1.44"}},
			{"zone that is none", "availability_zone: The network has no subnet in us-east-1c, only in us-east-1a, us-east-1b.", "", "", values{"availability_zone": "us-east-1c"}},
			{"subnet that is none", "subnet_id: subnet-1 is none of the network's subnets", "", "", values{"subnet_id": "subnet-1"}},
			{"address of another zone", "private_ip: 10.240.1.44 does not lie within 10.240.0.0/24, 10.240.128.0/24", "", "",
				values{"availability_zone": "us-east-1a", "private_ip": "10.240.1.44"}},
			{"public address, private subnet", "associate_public_ip_address: worker-0 would be in 10.240.1.0/24", "", "", values{"private_ip": "10.240.1.44"}},
		} {
			config := with(workerConfig(network), values{"private_ip": nil})
			worker := c.instance("k8s_machine")
			config = with(config, tc.more)
			if tc.refused != "" {
				if ch := worker.plan(config); !strings.Contains(ch.failure(), strings.SplitN(tc.refused, ": ", 2)[1]) {
					t.Errorf("%s: %s", tc.name, ch.failure())
				}
				continue
			}
			worker.must(config)
			worker.settled(config)
			if zone, ip := worker.get("availability_zone"), worker.get("private_ip").(string); zone != tc.zone || !strings.HasPrefix(ip, tc.cidr) {
				t.Errorf("%s: %v, %s", tc.name, zone, ip)
			}
			c.fatal(worker.apply(worker.plan(nil)))
		}
	})

	t.Run("damage", func(t *testing.T) {
		api := c.client.EC2
		for _, n := range c.nats(t, network) {
			if nameTag(n.Tags) == "demo-nat-1" {
				answer[*ec2.DeleteNatGatewayOutput](t)(api.DeleteNatGateway(t.Context(), &ec2.DeleteNatGatewayInput{NatGatewayId: n.NatGatewayId}))
			}
		}
		tables := answer[*ec2.DescribeRouteTablesOutput](t)(api.DescribeRouteTables(t.Context(), &ec2.DescribeRouteTablesInput{})).RouteTables
		for _, table := range tables {
			if nameTag(table.Tags) == "demo-private-0" {
				answer[*ec2.DeleteRouteOutput](t)(api.DeleteRoute(t.Context(), &ec2.DeleteRouteInput{RouteTableId: table.RouteTableId, DestinationCidrBlock: sdk.String("0.0.0.0/0")}))
			}
		}
		answer[*ec2.ModifySubnetAttributeOutput](t)(api.ModifySubnetAttribute(t.Context(), &ec2.ModifySubnetAttributeInput{
			SubnetId: sdk.String(network.get("subnet_id").(string)), MapPublicIpOnLaunch: &types.AttributeBooleanValue{Value: sdk.Bool(true)},
		}))
		network.refresh()
		for _, want := range []string{"NAT gateway nat-1: missing", "route table private-0: route 0.0.0.0/0", "subnet node-0: machines get a public address by default, wanted none"} {
			if !strings.Contains(network.drift(), want) {
				t.Errorf("drift %q, wanted %q", network.drift(), want)
			}
		}
		network.must(each)
		network.settled(each)
		is("repaired", separate, 2)
		if now := network.get("nat_ips").(values); !maps.Equal(was, now) {
			t.Errorf("addresses %v, before %v", now, was)
		}
	})

	network.must(one)
	network.settled(one)
	is("one again", shared, 1)
	if ch := network.plan(zonesConfig(values{"zone_count": 2})); len(ch.replace) == 0 {
		t.Error("private subnets become public ones in place")
	}
	for name, more := range map[string]values{
		"vpc_cidr":    {"vpc_cidr": "10.50.0.0/16", "node_cidr": "10.50.0.0/24"},
		"public_cidr": {"public_cidr": "10.240.64.0/28"},
	} {
		if ch := network.plan(with(one, more)); len(ch.errors) > 0 || !strings.Contains(fmt.Sprint(ch.replace), name) {
			t.Errorf("another %s: %s, replaced for %v", name, ch.failure(), ch.replace)
		}
	}
	again := c.ends(t).instance("k8s_network")
	again.imports("demo")
	again.settled(with(one, values{"instance_types": nil}))
	c.fatal(again.apply(again.plan(nil)))
	if n := c.addresses(t); n != 0 {
		t.Errorf("%d Elastic IPs are left", n)
	}
}

// TestZonesRefused refuses what the plan can know.
func TestZonesRefused(t *testing.T) {
	t.Parallel()
	c := newCloud(t)
	for _, tc := range []struct {
		name, want string
		more       values
	}{
		{"no room for the second zone", "10.240.1.0/24, the network of zone 2 after 10.240.0.0/24, does not lie within 10.240.0.0/24", values{"vpc_cidr": "10.240.0.0/24", "node_cidr": "10.240.0.0/24", "zone_count": 2}},
		{"overlap", "10.240.0.0/28 overlaps 10.240.0.0/24", values{"nat_gateways": "one", "public_cidr": "10.240.0.0/28"}},
		{"zone twice", "This attribute contains duplicate values", values{"availability_zones": []any{"us-east-1a", "us-east-1a"}}},
		{"zones and their number", "zone_count", values{"availability_zones": []any{"us-east-1a"}, "zone_count": 1}},
		{"public network without private ones", "nat_gateways", values{"public_cidr": "10.240.9.0/24"}},
		{"too many", "3 availability zones that offer all instance types, and 4 are wanted", values{"zone_count": 4, "instance_types": []any{"t3.small"}}},
	} {
		network := c.instance("k8s_network")
		if got := network.attempt(zonesConfig(tc.more)); !strings.Contains(got, tc.want) {
			t.Errorf("%s: %s", tc.name, got)
		}
		if network.get("vpc_id") != nil {
			c.fatal(network.apply(network.plan(nil)))
		}
	}
}
