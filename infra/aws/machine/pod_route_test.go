package machine

import (
	"context"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	sdk "github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/ec2"
	"github.com/aws/aws-sdk-go-v2/service/ec2/types"
	"github.com/aws/smithy-go/middleware"

	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/aws"
)

// routingEC2 answers calls about route tables: the nth call with the nth entry of told, later calls
// with the last one.
type routingEC2 struct {
	told      [][]types.RouteTable
	subnets   []types.Subnet
	instances []types.Instance

	mu     sync.Mutex
	asked  int
	routed []string // tables that got a route
}

func (e *routingEC2) client() *aws.Client {
	answer := middleware.InitializeMiddlewareFunc("answer", func(_ context.Context, in middleware.InitializeInput, _ middleware.InitializeHandler) (out middleware.InitializeOutput, md middleware.Metadata, err error) {
		e.mu.Lock()
		defer e.mu.Unlock()
		switch call := in.Parameters.(type) {
		case *ec2.DescribeRouteTablesInput:
			out.Result = &ec2.DescribeRouteTablesOutput{RouteTables: slices.Clone(e.told[min(e.asked, len(e.told)-1)])}
			e.asked++
		case *ec2.DescribeSubnetsInput:
			out.Result = &ec2.DescribeSubnetsOutput{Subnets: e.subnets}
		case *ec2.DescribeInstancesInput:
			out.Result = &ec2.DescribeInstancesOutput{Reservations: []types.Reservation{{Instances: slices.DeleteFunc(slices.Clone(e.instances), func(i types.Instance) bool {
				return !slices.Contains(append(call.InstanceIds, named(call.Filters, "instance-id")...), *i.InstanceId)
			})}}}
		case *ec2.DescribeVolumesInput:
			out.Result = &ec2.DescribeVolumesOutput{}
		case *ec2.CreateRouteInput:
			e.routed = append(e.routed, *call.RouteTableId)
			out.Result = &ec2.CreateRouteOutput{}
		case *ec2.ModifyNetworkInterfaceAttributeInput:
			out.Result = &ec2.ModifyNetworkInterfaceAttributeOutput{}
		default:
			err = fmt.Errorf("unexpected call %T", in.Parameters)
		}
		return out, md, err
	})
	return &aws.Client{EC2: ec2.New(ec2.Options{Region: "eu-central-1", APIOptions: []func(*middleware.Stack) error{
		func(s *middleware.Stack) error { return s.Initialize.Add(answer, middleware.Before) },
	}})}
}

// mainTable and tableWith return route tables: the VPC's main one, and one that is associated with
// a subnet.
func mainTable(routes ...types.Route) types.RouteTable {
	return types.RouteTable{VpcId: sdk.String("vpc-1"), RouteTableId: sdk.String("rtb-main"), Routes: routes, Associations: []types.RouteTableAssociation{{Main: sdk.Bool(true)}}}
}

func tableWith(id, subnet string, routes ...types.Route) types.RouteTable {
	return types.RouteTable{VpcId: sdk.String("vpc-1"), RouteTableId: &id, Routes: routes, Associations: []types.RouteTableAssociation{{SubnetId: &subnet}}}
}

// subnetOf returns a subnet of the cluster, or a foreign one for "".
func subnetOf(cluster, id string) types.Subnet {
	out := types.Subnet{SubnetId: &id}
	if cluster != "" {
		out.Tags = aws.EC2Tags(map[string]string{aws.TagCluster: cluster, aws.TagKind: aws.KindNetwork})
	}
	return out
}

func settleRoutes(e *routingEC2, subnets ...string) (*Launching, error) {
	l := &Launching{client: e.client(), spec: Spec{
		Cluster: "demo", VPCID: "vpc-1", NetworkSubnets: subnets, PodCIDR: netip.MustParsePrefix("10.200.0.0/24"),
	}}
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Minute)
	defer cancel()
	return l, l.completeLaunch(ctx, "i-1", &types.InstanceNetworkInterface{NetworkInterfaceId: sdk.String("eni-1")})
}

// TestSettleWaitsForTables checks that no other table gets the route if EC2 does not list a route
// table, or its association, yet.
func TestSettleWaitsForTables(t *testing.T) {
	none := []types.RouteTable{}
	main := []types.RouteTable{mainTable()}
	all := []types.RouteTable{mainTable(), tableWith("rtb-a", "subnet-a")}
	for _, tt := range []struct {
		name    string
		told    [][]types.RouteTable
		subnets []types.Subnet // as EC2 lists them
		want    string         // the table with the route
		fails   string
	}{
		{"own network", [][]types.RouteTable{none, main, main, all}, []types.Subnet{subnetOf("demo", "subnet-a")}, "rtb-a", ""},
		{"own network, subnet not listed", [][]types.RouteTable{none, main, main, all}, nil, "rtb-a", ""},
		{"own network without association", [][]types.RouteTable{main}, []types.Subnet{subnetOf("demo", "subnet-a")}, "", "subnet-a: no route table is associated with it"},
		{"adopted, main table", [][]types.RouteTable{none, none, main}, []types.Subnet{subnetOf("", "subnet-a")}, "rtb-main", ""},
		{"no table at all", [][]types.RouteTable{none}, []types.Subnet{subnetOf("", "subnet-a")}, "", "subnet-a has no route table"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				e := &routingEC2{told: tt.told, subnets: tt.subnets}
				l, err := settleRoutes(e, "subnet-a")
				if tt.fails == "" && err != nil || tt.fails != "" && (err == nil || !strings.Contains(err.Error(), tt.fails)) {
					t.Errorf("ended with %v, wanted %q", err, tt.fails)
				}
				if got := strings.Join(e.routed, " "); got != tt.want {
					t.Errorf("routes in %q, wanted %q", got, tt.want)
				}
				if got := strings.Join(l.tables, " "); got != tt.want {
					t.Errorf("on record: %q, wanted %q", got, tt.want)
				}
			})
		})
	}
}

// TestSettleRecordsItsOwn checks that a table in which a foreign route is in the way is not
// recorded as having the machine's.
func TestSettleRecordsItsOwn(t *testing.T) {
	foreign := types.Route{DestinationCidrBlock: sdk.String("10.200.0.0/24"), NetworkInterfaceId: sdk.String("eni-9"), State: types.RouteStateActive}
	e := &routingEC2{told: [][]types.RouteTable{{tableWith("rtb-a", "subnet-a"), tableWith("rtb-b", "subnet-b", foreign)}}}
	l, err := settleRoutes(e, "subnet-a", "subnet-b")
	if err == nil || !strings.Contains(err.Error(), "is not this machine's") {
		t.Errorf("a foreign route in the way: %v", err)
	}
	if slices.Contains(l.tables, "rtb-b") {
		t.Errorf("on record: %v", l.tables)
	}
}

// TestSettleWaitsForTheOther checks a machine that Terraform makes while it deletes another with
// the same pod network.
func TestSettleWaitsForTheOther(t *testing.T) {
	led := types.Route{DestinationCidrBlock: sdk.String("10.200.0.0/24"), NetworkInterfaceId: sdk.String("eni-2"), InstanceId: sdk.String("i-2"), State: types.RouteStateActive}
	held, free := []types.RouteTable{tableWith("rtb-a", "subnet-a", led)}, []types.RouteTable{tableWith("rtb-a", "subnet-a")}
	machine := func(cluster string) types.Instance {
		return types.Instance{InstanceId: sdk.String("i-2"), State: &types.InstanceState{Name: types.InstanceStateNameRunning},
			Tags: aws.EC2Tags(map[string]string{aws.TagCluster: cluster, aws.TagKind: aws.KindMachine, aws.TagResource: "worker-9"})}
	}
	for _, tt := range []struct {
		name  string
		told  [][]types.RouteTable
		owner string
		fails string
	}{
		{"it goes", [][]types.RouteTable{held, held, held, free}, "demo", ""},
		{"it stays", [][]types.RouteTable{held}, "demo", "it leads to worker-9 (i-2) of this cluster: not within 10m0s"},
		{"another cluster's", [][]types.RouteTable{held, free}, "other", "it leads to eni-2 and is not this machine's"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				e := &routingEC2{told: tt.told, instances: []types.Instance{machine(tt.owner)}}
				l := &Launching{client: e.client(), spec: Spec{
					Cluster: "demo", VPCID: "vpc-1", NetworkSubnets: []string{"subnet-a"}, PodCIDR: netip.MustParsePrefix("10.200.0.0/24"),
				}}
				err := l.completeLaunch(t.Context(), "i-1", &types.InstanceNetworkInterface{NetworkInterfaceId: sdk.String("eni-1")})
				if tt.fails == "" && err != nil || tt.fails != "" && (err == nil || !strings.Contains(err.Error(), tt.fails)) {
					t.Errorf("ended with %v, wanted %q", err, tt.fails)
				}
				if routed := len(e.routed) > 0; routed != (tt.fails == "") {
					t.Errorf("routes in %q", e.routed)
				}
			})
		})
	}
}

// TestObserveRecordsItsOwn checks that a foreign route to the machine, in a table that applies to
// none of the network's subnets, does not count as the machine's.
func TestObserveRecordsItsOwn(t *testing.T) {
	to := types.Route{DestinationCidrBlock: sdk.String("10.200.0.0/24"), NetworkInterfaceId: sdk.String("eni-1"), InstanceId: sdk.String("i-1"), State: types.RouteStateActive}
	e := &routingEC2{told: [][]types.RouteTable{{tableWith("rtb-a", "subnet-a", to), tableWith("rtb-vpn", "subnet-vpn", to)}}, instances: []types.Instance{{
		InstanceId: sdk.String("i-1"), State: &types.InstanceState{Name: types.InstanceStateNameRunning}, SubnetId: sdk.String("subnet-a"),
		NetworkInterfaces: []types.InstanceNetworkInterface{{NetworkInterfaceId: sdk.String("eni-1")}},
	}}}
	m, _, err := Observe(t.Context(), e.client(), "i-1", Spec{Cluster: "demo", Name: "worker-0", VPCID: "vpc-1",
		NetworkSubnets: []string{"subnet-a"}, PodCIDR: netip.MustParsePrefix("10.200.0.0/24")})
	if err != nil || !slices.Equal(m.RouteTables, []string{"rtb-a"}) {
		t.Errorf("on record: %v, %v", m.RouteTables, err)
	}
}

// named returns the values of a filter.
func named(filters []types.Filter, name string) (values []string) {
	for _, f := range filters {
		if sdk.ToString(f.Name) == name {
			values = append(values, f.Values...)
		}
	}
	return values
}
