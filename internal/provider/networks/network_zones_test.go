package networks_test

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
	"github.com/k8s-from-scratch/terraform-provider-k8s/internal/lab/cloud/fault"
	"github.com/k8s-from-scratch/terraform-provider-k8s/internal/provider/providertest"
)

// zonesConfig is a network in zones that offer every type of the local EC2 of these tests.
func zonesConfig(more providertest.Values) providertest.Values {
	return providertest.With(providertest.NetworkConfig(), providertest.With(providertest.Values{"instance_types": []any{"m5.large"}}, more))
}

const publicLayout = `demo-node-0 10.240.0.0/24 us-east-1a true igw
demo-node-1 10.240.1.0/24 us-east-1b true igw
demo-node-2 10.240.2.0/24 us-east-1c true igw`

// TestZones makes a network in several zones, adds one and takes it away.
func TestZones(t *testing.T) {
	t.Parallel()
	c := providertest.NewCloud(t)
	network := c.Instance("k8s_network")
	two, three := zonesConfig(providertest.Values{"zone_count": 2}), zonesConfig(providertest.Values{"zone_count": 3})
	network.Must(two)
	network.Converged(two)
	first, _, _ := strings.Cut(publicLayout, "\ndemo-node-2")
	if got := c.Layout(t, network); got != first {
		t.Errorf("two zones:\n%s", got)
	}
	worker := c.Instance("k8s_machine")
	machine := providertest.With(providertest.WorkerConfig(network), providertest.Values{"private_ip": "10.240.1.20"})
	worker.Must(machine)
	subnet := worker.Get("subnet_id")
	if zone := worker.Get("availability_zone"); zone != "us-east-1b" {
		t.Errorf("the address of the second zone is in %v", zone)
	}

	network.Must(three)
	network.Converged(three)
	if got := c.Layout(t, network); got != publicLayout {
		t.Errorf("three zones:\n%s", got)
	}
	if got := fmt.Sprint(network.Get("node_cidrs"), network.Get("availability_zones")); got != "[10.240.0.0/24 10.240.1.0/24 10.240.2.0/24] [us-east-1a us-east-1b us-east-1c]" {
		t.Error(got)
	}
	machine["network"] = network.Get("ref")
	if ch := worker.Plan(machine); len(ch.Errors) > 0 || len(ch.Replace) > 0 {
		t.Errorf("another zone: %s, replaced for %v", ch.Failure(), ch.Replace)
	}
	worker.Must(machine)
	if worker.Get("subnet_id") != subnet {
		t.Error("the machine has moved")
	}

	network.Must(two)
	network.Converged(two)
	if got := c.Layout(t, network); got != first {
		t.Errorf("two zones again:\n%s", got)
	}
	named := zonesConfig(providertest.Values{"availability_zones": []any{"us-east-1a", "us-east-1b"}})
	network.Converged(named)
	if ch := network.Plan(zonesConfig(providertest.Values{"availability_zones": []any{"us-east-1b", "us-east-1a"}})); len(ch.Replace) == 0 {
		t.Error("zones that change places do not replace the network")
	}

	again := c.Ends(t).Instance("k8s_network")
	again.Imports("demo")
	again.Converged(providertest.With(two, providertest.Values{"instance_types": nil}))
}

// TestPrivateSubnets makes private subnets behind NAT gateways, damages and changes them.
func TestPrivateSubnets(t *testing.T) {
	t.Parallel()
	c := providertest.NewCloud(t)
	c.Reached = func(remote.Host) {}
	c.SSH = providertest.Values{"private_key": c.Key, "bastion": providertest.Values{"address": "192.0.2.1", "host_keys": []any{providertest.PublicKey(t)}}}
	c = c.Process(t)
	network := c.Instance("k8s_network")
	one, each := zonesConfig(providertest.Values{"zone_count": 2, "nat_gateways": "one"}), zonesConfig(providertest.Values{"zone_count": 2, "nat_gateways": "per_zone"})
	const public = `
demo-public-0 10.240.128.0/24 us-east-1a true igw
demo-public-1 10.240.129.0/24 us-east-1b true igw`
	const shared = `demo-node-0 10.240.0.0/24 us-east-1a false demo-nat-0
demo-node-1 10.240.1.0/24 us-east-1b false demo-nat-0` + public
	const separate = `demo-node-0 10.240.0.0/24 us-east-1a false demo-nat-0
demo-node-1 10.240.1.0/24 us-east-1b false demo-nat-1` + public
	is := func(when, want string, gateways int) {
		t.Helper()
		if got := c.Layout(t, network); got != want {
			t.Errorf("%s:\n%s\nwanted\n%s", when, got, want)
		}
		ips, _ := network.Get("nat_ips").(providertest.Values)
		if n := len(c.Nats(t, network)); n != gateways || c.Addresses(t) != gateways || len(ips) != gateways {
			t.Errorf("%s: %d NAT gateways, %d addresses, nat_ips %v", when, n, c.Addresses(t), ips)
		}
	}
	network.Must(one)
	network.Converged(one)
	is("one", shared, 1)
	network.Must(each)
	network.Converged(each)
	is("per_zone", separate, 2)
	was := maps.Clone(network.Get("nat_ips").(providertest.Values))

	t.Run("machines", func(t *testing.T) {
		for _, tc := range []struct {
			name, refused, zone, cidr string
			more                      providertest.Values
		}{
			{"private, by default", "", "us-east-1a", "10.240.0.", providertest.Values{"associate_public_ip_address": false}},
			{"private, by zone", "", "us-east-1b", "10.240.1.", providertest.Values{"associate_public_ip_address": false, "availability_zone": "us-east-1b"}},
			{"public, by zone", "", "us-east-1b", "10.240.129.", providertest.Values{"availability_zone": "us-east-1b"}},
			{"by subnet", "", "us-east-1b", "10.240.1.", providertest.Values{"associate_public_ip_address": false, "subnet_id": network.Get("subnet_ids").([]any)[1]}},
			{"by address", "", "us-east-1b", "10.240.1.44", providertest.Values{"associate_public_ip_address": false, "private_ip": "10.240.1.44"}},
			{"unknown zone", "availability_zone: The network has no subnet in us-east-1c, only in us-east-1a, us-east-1b.", "", "", providertest.Values{"availability_zone": "us-east-1c"}},
			{"unknown subnet", "subnet_id: subnet-1 is none of the network's subnets", "", "", providertest.Values{"subnet_id": "subnet-1"}},
			{"address of another zone", "private_ip: 10.240.1.44 does not lie within 10.240.0.0/24, 10.240.128.0/24", "", "",
				providertest.Values{"availability_zone": "us-east-1a", "private_ip": "10.240.1.44"}},
			{"public address, private subnet", "associate_public_ip_address: worker-0 would be in 10.240.1.0/24", "", "", providertest.Values{"private_ip": "10.240.1.44"}},
		} {
			config := providertest.With(providertest.WorkerConfig(network), providertest.Values{"private_ip": nil})
			worker := c.Instance("k8s_machine")
			config = providertest.With(config, tc.more)
			if tc.refused != "" {
				if ch := worker.Plan(config); !strings.Contains(ch.Failure(), strings.SplitN(tc.refused, ": ", 2)[1]) {
					t.Errorf("%s: %s", tc.name, ch.Failure())
				}
				continue
			}
			worker.Must(config)
			worker.Converged(config)
			if zone, ip := worker.Get("availability_zone"), worker.Get("private_ip").(string); zone != tc.zone || !strings.HasPrefix(ip, tc.cidr) {
				t.Errorf("%s: %v, %s", tc.name, zone, ip)
			}
			c.Fatal(worker.Apply(worker.Plan(nil)))
		}
	})

	t.Run("damage", func(t *testing.T) {
		api := c.Client.EC2
		for _, n := range c.Nats(t, network) {
			if providertest.NameTag(n.Tags) == "demo-nat-1" {
				providertest.Answer[*ec2.DeleteNatGatewayOutput](t)(api.DeleteNatGateway(t.Context(), &ec2.DeleteNatGatewayInput{NatGatewayId: n.NatGatewayId}))
			}
		}
		tables := providertest.Answer[*ec2.DescribeRouteTablesOutput](t)(api.DescribeRouteTables(t.Context(), &ec2.DescribeRouteTablesInput{})).RouteTables
		for _, table := range tables {
			if providertest.NameTag(table.Tags) == "demo-private-0" {
				providertest.Answer[*ec2.DeleteRouteOutput](t)(api.DeleteRoute(t.Context(), &ec2.DeleteRouteInput{RouteTableId: table.RouteTableId, DestinationCidrBlock: sdk.String("0.0.0.0/0")}))
			}
		}
		providertest.Answer[*ec2.ModifySubnetAttributeOutput](t)(api.ModifySubnetAttribute(t.Context(), &ec2.ModifySubnetAttributeInput{
			SubnetId: sdk.String(network.Get("subnet_id").(string)), MapPublicIpOnLaunch: &types.AttributeBooleanValue{Value: sdk.Bool(true)},
		}))
		network.Refresh()
		for _, want := range []string{"NAT gateway nat-1: missing", "route table private-0: route 0.0.0.0/0", "subnet node-0: machines get a public address by default, wanted none"} {
			if !strings.Contains(network.Drift(), want) {
				t.Errorf("drift %q, wanted %q", network.Drift(), want)
			}
		}
		network.Must(each)
		network.Converged(each)
		is("repaired", separate, 2)
		if now := network.Get("nat_ips").(providertest.Values); !maps.Equal(was, now) {
			t.Errorf("addresses %v, before %v", now, was)
		}
	})

	network.Must(one)
	network.Converged(one)
	is("one again", shared, 1)
	if ch := network.Plan(zonesConfig(providertest.Values{"zone_count": 2})); len(ch.Replace) == 0 {
		t.Error("private subnets become public ones in place")
	}
	for name, more := range map[string]providertest.Values{
		"vpc_cidr":    {"vpc_cidr": "10.50.0.0/16", "node_cidr": "10.50.0.0/24"},
		"public_cidr": {"public_cidr": "10.240.64.0/28"},
	} {
		if ch := network.Plan(providertest.With(one, more)); len(ch.Errors) > 0 || !strings.Contains(fmt.Sprint(ch.Replace), name) {
			t.Errorf("another %s: %s, replaced for %v", name, ch.Failure(), ch.Replace)
		}
	}
	again := c.Ends(t).Instance("k8s_network")
	again.Imports("demo")
	again.Converged(providertest.With(one, providertest.Values{"instance_types": nil}))
	c.Fatal(again.Apply(again.Plan(nil)))
	if n := c.Addresses(t); n != 0 {
		t.Errorf("%d Elastic IPs are left", n)
	}
}

// TestClosedZone takes the next zone if EC2 makes no subnets in one, for private and public subnets alike.
func TestClosedZone(t *testing.T) {
	t.Parallel()
	for name, more := range map[string]providertest.Values{"public": nil, "private": {"nat_gateways": "one"}} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c := providertest.NewCloud(t)
			network := c.Instance("k8s_network")
			config := zonesConfig(providertest.With(providertest.Values{"zone_count": 3, "instance_types": []any{"t3.medium"}}, more))
			network.Must(config)
			network.Converged(config)
			if got := fmt.Sprint(network.Get("availability_zones")); got != "[us-east-1a us-east-1b us-east-1e]" {
				t.Errorf("%s\n%s", got, c.Layout(t, network))
			}
			c.Fatal(network.Apply(network.Plan(nil)))
		})
	}
}

// TestClosedZoneBesideOthers: while the subnet of one zone is refused, the subnets of the others are on their way, and no two
// zones of a network are the same.
func TestClosedZoneBesideOthers(t *testing.T) {
	t.Parallel()
	c := providertest.NewCloud(t)
	const words = "Value (us-east-1x) for parameter availabilityZone is invalid. Subnets can currently only be created in the following availability zones: us-east-1e."
	for range 8 {
		network := c.Instance("k8s_network")
		c.Account.Fault(fault.Fault{Kind: fault.Fail, Action: "CreateSubnet", Code: "InvalidParameterValue", Message: words, Count: 1})
		config := zonesConfig(providertest.Values{"zone_count": 2, "instance_types": []any{"t3.medium"}})
		network.Must(config)
		if got := fmt.Sprint(network.Get("availability_zones")); !slices.Contains([]string{"[us-east-1e us-east-1b]", "[us-east-1a us-east-1e]"}, got) {
			t.Errorf("%s\n%s", got, c.Layout(t, network))
		}
		c.Fatal(network.Apply(network.Plan(nil)))
	}
}

// TestZonesRefused refuses what the plan can know.
func TestZonesRefused(t *testing.T) {
	t.Parallel()
	c := providertest.NewCloud(t)
	for _, tc := range []struct {
		name, want string
		more       providertest.Values
	}{
		{"no room for the second zone", "10.240.1.0/24, the network of zone 2 after 10.240.0.0/24, does not lie within 10.240.0.0/24", providertest.Values{"vpc_cidr": "10.240.0.0/24", "node_cidr": "10.240.0.0/24", "zone_count": 2}},
		{"overlap", "10.240.0.0/28 overlaps 10.240.0.0/24", providertest.Values{"nat_gateways": "one", "public_cidr": "10.240.0.0/28"}},
		{"zone twice", "This attribute contains duplicate values", providertest.Values{"availability_zones": []any{"us-east-1a", "us-east-1a"}}},
		{"zones and their number", "zone_count", providertest.Values{"availability_zones": []any{"us-east-1a"}, "zone_count": 1}},
		{"public network without private ones", "nat_gateways", providertest.Values{"public_cidr": "10.240.9.0/24"}},
		{"Local Zone", "Local Zones and Wavelength Zones", providertest.Values{"availability_zones": []any{"us-east-1-lax-1a"}}},
		{"too many", "4 availability zones that offer all instance types, and 5 are wanted", providertest.Values{"zone_count": 5, "instance_types": []any{"t3.small"}}},
		{"too many, one is closed", "4 are wanted: t3.small is offered in us-east-1a, us-east-1b, us-east-1d, us-east-1e. EC2 makes no subnets for this account in us-east-1d.", providertest.Values{"zone_count": 4, "instance_types": []any{"t3.small"}}},
		{"closed zone", "Subnets can currently only be created in the following availability zones: ", providertest.Values{"availability_zones": []any{"us-east-1d"}}},
	} {
		network := c.Instance("k8s_network")
		if got := network.Attempt(zonesConfig(tc.more)); !strings.Contains(got, tc.want) {
			t.Errorf("%s: %s", tc.name, got)
		}
		if network.Get("vpc_id") != nil {
			c.Fatal(network.Apply(network.Plan(nil)))
		}
	}
}
