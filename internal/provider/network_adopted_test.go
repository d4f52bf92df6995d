package provider

import (
	"slices"
	"strings"
	"testing"

	sdk "github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/ec2"
	"github.com/aws/aws-sdk-go-v2/service/ec2/types"

	awsnetwork "github.com/k8s-from-scratch/terraform-provider-k8s/infra/aws/network"
	"github.com/k8s-from-scratch/terraform-provider-k8s/internal/lab/cloud/fault"
)

// site is an existing VPC that the cluster adopts. Subnet a has its own route table, b the VPC's
// main one.
type site struct {
	c            cloud
	api          *ec2.Client
	vpc          string
	a, b         string
	tableA, main string
}

// answer returns the result of a call that must succeed.
func answer[T any](t *testing.T) func(T, error) T {
	t.Helper()
	return func(v T, err error) T {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		return v
	}
}

func newSite(t *testing.T, c cloud) *site {
	t.Helper()
	s := &site{c: c, api: c.client.EC2}
	ctx := t.Context()
	s.vpc = *answer[*ec2.CreateVpcOutput](t)(s.api.CreateVpc(ctx, &ec2.CreateVpcInput{CidrBlock: sdk.String("10.240.0.0/16")})).Vpc.VpcId
	s.a, s.b = s.subnet(t, "10.240.0.0/24"), s.subnet(t, "10.240.1.0/24")
	s.tableA = s.table(t)
	answer[*ec2.AssociateRouteTableOutput](t)(s.api.AssociateRouteTable(ctx, &ec2.AssociateRouteTableInput{RouteTableId: &s.tableA, SubnetId: &s.a}))
	out := answer[*ec2.DescribeRouteTablesOutput](t)(s.api.DescribeRouteTables(ctx, &ec2.DescribeRouteTablesInput{Filters: []types.Filter{
		{Name: sdk.String("vpc-id"), Values: []string{s.vpc}}, {Name: sdk.String("association.main"), Values: []string{"true"}}}}))
	s.main = *out.RouteTables[0].RouteTableId
	return s
}

func (s *site) subnet(t *testing.T, cidr string) string {
	t.Helper()
	return *answer[*ec2.CreateSubnetOutput](t)(s.api.CreateSubnet(t.Context(), &ec2.CreateSubnetInput{VpcId: &s.vpc, CidrBlock: &cidr, AvailabilityZone: sdk.String("us-east-1a")})).Subnet.SubnetId
}

func (s *site) table(t *testing.T) string {
	t.Helper()
	return *answer[*ec2.CreateRouteTableOutput](t)(s.api.CreateRouteTable(t.Context(), &ec2.CreateRouteTableInput{VpcId: &s.vpc})).RouteTable.RouteTableId
}

func (s *site) network(subnets ...any) values {
	config := networkConfig()
	config["vpc_id"], config["subnet_ids"] = s.vpc, subnets
	return config
}

// routes returns the destinations in a route table, without the VPC's own.
func (s *site) routes(t *testing.T, table string) string {
	t.Helper()
	out := answer[*ec2.DescribeRouteTablesOutput](t)(s.api.DescribeRouteTables(t.Context(), &ec2.DescribeRouteTablesInput{RouteTableIds: []string{table}}))
	var to []string
	for _, r := range out.RouteTables[0].Routes {
		if sdk.ToString(r.GatewayId) != "local" {
			to = append(to, *r.DestinationCidrBlock)
		}
	}
	slices.Sort(to)
	return strings.Join(to, " ")
}

// drift returns all findings of a resource's last refresh.
func (i *instance) drift() string {
	found, _ := i.get("drift").(values)
	var out []string
	for thing, words := range found {
		out = append(out, thing+": "+words.(string))
	}
	slices.Sort(out)
	return strings.Join(out, "\n")
}

// TestTwoRouteTables checks that pods of a machine in one subnet are reached from the other subnet,
// which has another route table.
func TestTwoRouteTables(t *testing.T) {
	t.Parallel()
	c := newCloud(t)
	s := newSite(t, c)
	network, first, second := c.instance("k8s_network"), c.instance("k8s_machine"), c.instance("k8s_machine")
	network.must(s.network(s.a, s.b))
	network.settled(s.network(s.a, s.b))
	configs := func() (values, values) {
		other := workerConfig(network)
		other["name"], other["private_ip"], other["pod_cidr"] = "worker-1", "10.240.1.20", "10.200.1.0/24"
		return workerConfig(network), other
	}
	one, two := configs()
	first.must(one)
	second.must(two)
	everywhere := func(tables ...string) {
		t.Helper()
		for _, table := range tables {
			if got := s.routes(t, table); got != "10.200.0.0/24 10.200.1.0/24" {
				t.Errorf("routes in %s: %s", table, got)
			}
		}
		first.settled(one)
		second.settled(two)
	}
	everywhere(s.tableA, s.main)

	// A route that is missing in only one table is drift.
	if _, err := s.api.DeleteRoute(t.Context(), &ec2.DeleteRouteInput{RouteTableId: &s.main, DestinationCidrBlock: sdk.String("10.200.0.0/24")}); err != nil {
		t.Fatal(err)
	}
	first.refresh()
	if got := first.drift(); !strings.HasPrefix(got, "worker-0: route 10.200.0.0/24 in "+s.main+": missing, wanted eni-") {
		t.Errorf("drift %s", got)
	}
	first.must(one)
	everywhere(s.tableA, s.main)

	// So is a route table that is newly associated with a subnet. The previous table no longer
	// needs the routes.
	third := s.table(t)
	if _, err := s.api.AssociateRouteTable(t.Context(), &ec2.AssociateRouteTableInput{RouteTableId: &third, SubnetId: &s.b}); err != nil {
		t.Fatal(err)
	}
	network.refresh()
	one, two = configs()
	for _, m := range []*instance{first, second} {
		m.refresh()
		if got := m.drift(); !strings.Contains(got, " in "+third+": missing, wanted eni-") || !strings.Contains(got, " in "+s.main+": not wanted") {
			t.Errorf("drift %s", got)
		}
	}
	first.must(one)
	second.must(two)
	everywhere(s.tableA, third)
	if got := s.routes(t, s.main); got != "" {
		t.Errorf("routes left in %s: %s", s.main, got)
	}

	// Deleting a machine deletes only its own routes.
	if _, err := s.api.CreateRoute(t.Context(), &ec2.CreateRouteInput{RouteTableId: &third, DestinationCidrBlock: sdk.String("192.0.2.0/24"), InstanceId: sdk.String(second.get("id").(string))}); err != nil {
		t.Fatal(err)
	}
	c.fatal(first.apply(first.plan(nil)))
	if a, b := s.routes(t, s.tableA), s.routes(t, third); a != "10.200.1.0/24" || b != "10.200.1.0/24 192.0.2.0/24" {
		t.Errorf("routes %s and %s", a, b)
	}
	c.fatal(second.apply(second.plan(nil)))
	c.fatal(network.apply(network.plan(nil)))
	if a, b := s.routes(t, s.tableA), s.routes(t, third); a != "" || b != "192.0.2.0/24" {
		t.Errorf("routes %s and %s", a, b)
	}
}

// TestSubnetsOfTheAdopted changes subnet_ids, and deletes a subnet outside Terraform.
func TestSubnetsOfTheAdopted(t *testing.T) {
	t.Parallel()
	c := newCloud(t)
	s := newSite(t, c)
	network, worker := c.instance("k8s_network"), c.instance("k8s_machine")
	network.must(s.network(s.a))
	worker.must(workerConfig(network))
	id := worker.get("id")

	network.must(s.network(s.a, s.b))
	network.settled(s.network(s.a, s.b))
	if ch := worker.plan(workerConfig(network)); len(ch.replace) > 0 {
		t.Fatalf("a further subnet would replace the machine: %v", ch.replace)
	}
	worker.must(workerConfig(network))
	worker.settled(workerConfig(network))
	if got := s.routes(t, s.main); got != "10.200.0.0/24" {
		t.Errorf("routes in the table of the further subnet: %s", got)
	}

	if _, err := s.api.DeleteSubnet(t.Context(), &ec2.DeleteSubnetInput{SubnetId: &s.b}); err != nil {
		t.Fatal(err)
	}
	network.refresh()
	if got := network.drift(); got != "subnet "+s.b+": missing in "+s.vpc {
		t.Errorf("drift %s", got)
	}
	ch := network.plan(s.network(s.a, s.b))
	if got := (change{errors: append(ch.errors, network.apply(ch)...)}).failure(); !strings.Contains(got, s.b) || !strings.Contains(got, "subnet_ids") {
		t.Errorf("an apply that wants the deleted subnet: %s", got)
	}
	network.refresh()
	network.must(s.network(s.a))
	network.settled(s.network(s.a))
	worker.must(workerConfig(network))
	worker.settled(workerConfig(network))
	if worker.get("id") != id {
		t.Error("it is another machine")
	}
	if got := s.routes(t, s.main); got != "" {
		t.Errorf("routes left in the main table: %s", got)
	}
	c.fatal(worker.apply(worker.plan(nil)))

	// A network whose VPC was deleted can still be refreshed and destroyed. Other subnets of the
	// VPC do not belong to the network.
	s.subnet(t, "10.240.7.0/24")
	if _, err := s.api.DeleteSubnet(t.Context(), &ec2.DeleteSubnetInput{SubnetId: &s.a}); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		network.refresh()
		if ids, _ := network.get("subnet_ids").([]any); len(ids) > 0 {
			t.Errorf("subnets %v", ids)
		}
		if ch := network.plan(s.network(s.a)); len(ch.errors) > 0 || network.empty(ch) {
			t.Errorf("the plan is empty, or fails: %s", ch.failure())
		}
	}
	c.fatal(network.apply(network.plan(nil)))
	if o := c.account.Cloud.Overview(); o.Total != 5 { // the VPC, its default group, a subnet and two tables
		t.Errorf("left behind: %+v", o)
	}
}

// TestRoutesOfFailedUpdate checks that a route created by a failed update is deleted when its
// subnet leaves the network again.
func TestRoutesOfFailedUpdate(t *testing.T) {
	t.Parallel()
	c := newCloud(t)
	s := newSite(t, c)
	network, worker := c.instance("k8s_network"), c.instance("k8s_machine")
	network.must(s.network(s.a))
	worker.must(workerConfig(network))

	network.must(s.network(s.a, s.b))
	c.account.Fault(fault.Fault{Kind: fault.Fail, Action: "StopInstances", Code: "UnsupportedOperation", Message: "Not now."})
	config := workerConfig(network)
	config["instance_type"] = "t3.medium"
	if diags := worker.apply(worker.plan(config)); len(diags) == 0 {
		t.Fatal("the update did not fail")
	}
	c.account.Calm()
	if got := s.routes(t, s.main); got != "10.200.0.0/24" {
		t.Fatalf("routes in the table of the further subnet: %s", got)
	}

	network.must(s.network(s.a))
	worker.refresh()
	if got := worker.drift(); !strings.Contains(got, " in "+s.main+": not wanted") {
		t.Errorf("drift %s", got)
	}
	worker.must(workerConfig(network))
	worker.settled(workerConfig(network))
	if got := s.routes(t, s.main); got != "" {
		t.Errorf("routes left in the main table: %s", got)
	}
}

// TestTableOfDeletedSubnet checks that machines want no routes for a deleted subnet. The missing
// subnet is drift of the network.
func TestTableOfDeletedSubnet(t *testing.T) {
	t.Parallel()
	c := newCloud(t)
	s := newSite(t, c)
	table := s.table(t)
	answer[*ec2.AssociateRouteTableOutput](t)(s.api.AssociateRouteTable(t.Context(), &ec2.AssociateRouteTableInput{RouteTableId: &table, SubnetId: &s.b}))
	network, worker := c.instance("k8s_network"), c.instance("k8s_machine")
	network.must(s.network(s.a, s.b))
	worker.must(workerConfig(network))
	answer[*ec2.DeleteSubnetOutput](t)(s.api.DeleteSubnet(t.Context(), &ec2.DeleteSubnetInput{SubnetId: &s.b}))
	worker.refresh()
	if got := worker.drift(); got != "worker-0: route 10.200.0.0/24 in "+table+": not wanted" {
		t.Errorf("drift %s", got)
	}
}

// TestPartsDeleted deletes parts of the cluster's own network outside Terraform. The plan says so,
// apply creates them again, and destroy succeeds without them.
func TestPartsDeleted(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		name   string
		remove func(t *testing.T, api *ec2.Client, network *instance)
		says   string
	}{
		{"route table", func(t *testing.T, api *ec2.Client, network *instance) {
			removeTable(t, api, network.get("vpc_id").(string))
		}, "route table public: missing"},
		{"internet gateway", func(t *testing.T, api *ec2.Client, network *instance) {
			removeGateway(t, api, network.get("vpc_id").(string))
		}, "internet gateway: missing"},
		{"subnet", func(t *testing.T, api *ec2.Client, network *instance) {
			answer[*ec2.DeleteSubnetOutput](t)(api.DeleteSubnet(t.Context(), &ec2.DeleteSubnetInput{SubnetId: sdk.String(network.get("subnet_id").(string))}))
		}, "subnet node-0: missing"},
		{"all but the VPC", func(t *testing.T, api *ec2.Client, network *instance) {
			removeTable(t, api, network.get("vpc_id").(string))
			removeGateway(t, api, network.get("vpc_id").(string))
			answer[*ec2.DeleteSubnetOutput](t)(api.DeleteSubnet(t.Context(), &ec2.DeleteSubnetInput{SubnetId: sdk.String(network.get("subnet_id").(string))}))
		}, "internet gateway: missing\nroute table public: missing\nsubnet node-0: missing"},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			c := newCloud(t)
			network, worker := c.instance("k8s_network"), c.instance("k8s_machine")
			network.must(networkConfig())
			// EC2 does not delete a subnet with machines, or detach a gateway that public addresses
			// need.
			keepsMachine := test.name == "route table"
			if keepsMachine {
				worker.must(workerConfig(network))
			}
			for _, repair := range []bool{true, false} {
				test.remove(t, c.client.EC2, network)
				network.refresh()
				if got := network.drift(); got != test.says {
					t.Errorf("drift %q, wanted %q", got, test.says)
				}
				if keepsMachine {
					worker.refresh()
					if ch := worker.plan(workerConfig(network)); len(ch.errors) > 0 || len(ch.replace) > 0 {
						t.Errorf("machine: %s, replaced for %v", ch.failure(), ch.replace)
					}
				}
				if !repair {
					break
				}
				network.must(networkConfig())
				network.settled(networkConfig())
				if keepsMachine {
					worker.must(workerConfig(network))
					worker.settled(workerConfig(network))
				}
			}
			if keepsMachine {
				c.fatal(worker.apply(worker.plan(nil)))
			}
			c.fatal(network.apply(network.plan(nil)))
			c.account.Empty()
		})
	}
}

func removeTable(t *testing.T, api *ec2.Client, vpc string) {
	t.Helper()
	out := answer[*ec2.DescribeRouteTablesOutput](t)(api.DescribeRouteTables(t.Context(), &ec2.DescribeRouteTablesInput{Filters: []types.Filter{
		{Name: sdk.String("vpc-id"), Values: []string{vpc}}, {Name: sdk.String("association.main"), Values: []string{"false"}}}}))
	table := out.RouteTables[0]
	answer[*ec2.DisassociateRouteTableOutput](t)(api.DisassociateRouteTable(t.Context(), &ec2.DisassociateRouteTableInput{AssociationId: table.Associations[0].RouteTableAssociationId}))
	answer[*ec2.DeleteRouteTableOutput](t)(api.DeleteRouteTable(t.Context(), &ec2.DeleteRouteTableInput{RouteTableId: table.RouteTableId}))
}

func removeGateway(t *testing.T, api *ec2.Client, vpc string) {
	t.Helper()
	out := answer[*ec2.DescribeInternetGatewaysOutput](t)(api.DescribeInternetGateways(t.Context(), &ec2.DescribeInternetGatewaysInput{Filters: []types.Filter{
		{Name: sdk.String("attachment.vpc-id"), Values: []string{vpc}}}}))
	id := out.InternetGateways[0].InternetGatewayId
	answer[*ec2.DetachInternetGatewayOutput](t)(api.DetachInternetGateway(t.Context(), &ec2.DetachInternetGatewayInput{InternetGatewayId: id, VpcId: &vpc}))
	answer[*ec2.DeleteInternetGatewayOutput](t)(api.DeleteInternetGateway(t.Context(), &ec2.DeleteInternetGatewayInput{InternetGatewayId: id}))
}

// TestIgnoreRules checks that a rule of others is kept only while ignore_rules matches it.
func TestIgnoreRules(t *testing.T) {
	t.Parallel()
	c := newCloud(t)
	network := c.instance("k8s_network")
	network.must(networkConfig())
	worker := network.get("security_group_ids").(values)["worker"].(string)
	answer[*ec2.AuthorizeSecurityGroupIngressOutput](t)(c.client.EC2.AuthorizeSecurityGroupIngress(t.Context(), &ec2.AuthorizeSecurityGroupIngressInput{
		GroupId: &worker, IpPermissions: []types.IpPermission{{IpProtocol: sdk.String("tcp"), FromPort: sdk.Int32(80), ToPort: sdk.Int32(80),
			IpRanges: []types.IpRange{{CidrIp: sdk.String("0.0.0.0/0"), Description: sdk.String("elbv2.k8s.aws/targetGroupBinding=shared")}}}}}))
	config := networkConfig()
	config["ignore_rules"] = values{"description_prefixes": []any{"elbv2.k8s.aws/"}}
	network.must(config)
	network.settled(config)
	network.must(networkConfig())
	network.refresh()
	if got := network.drift(); got != "" {
		t.Errorf("the rule was to be removed, drift is %s", got)
	}
	c.fatal(network.apply(network.plan(nil)))
	c.account.Empty()
}

// TestNetworkGone deletes a whole network outside Terraform, including the VPC. Destroy succeeds,
// and after a refresh with a warning apply creates it again.
func TestNetworkGone(t *testing.T) {
	t.Parallel()
	c := newCloud(t)
	own, adopted := c.instance("k8s_network"), c.instance("k8s_network")
	s := newSite(t, c)
	own.must(networkConfig())
	other := s.network(s.a, s.b)
	other["cluster"] = "other"
	adopted.must(other)

	vpc := own.get("vpc_id").(string)
	if err := awsnetwork.Delete(t.Context(), c.client, awsnetwork.Spec{Cluster: "demo", Claim: claimOf(t, own)}); err != nil {
		t.Fatal(err)
	}
	for _, id := range adopted.get("security_group_ids").(values) {
		answer[*ec2.RevokeSecurityGroupIngressOutput](t)(s.api.RevokeSecurityGroupIngress(t.Context(), &ec2.RevokeSecurityGroupIngressInput{
			GroupId: sdk.String(id.(string)), IpPermissions: s.rules(t, id.(string))}))
	}
	for _, id := range adopted.get("security_group_ids").(values) {
		answer[*ec2.DeleteSecurityGroupOutput](t)(s.api.DeleteSecurityGroup(t.Context(), &ec2.DeleteSecurityGroupInput{GroupId: sdk.String(id.(string))}))
	}
	for _, id := range []string{s.a, s.b} {
		answer[*ec2.DeleteSubnetOutput](t)(s.api.DeleteSubnet(t.Context(), &ec2.DeleteSubnetInput{SubnetId: &id}))
	}
	answer[*ec2.DeleteRouteTableOutput](t)(s.api.DeleteRouteTable(t.Context(), &ec2.DeleteRouteTableInput{RouteTableId: &s.tableA}))
	answer[*ec2.DeleteVpcOutput](t)(s.api.DeleteVpc(t.Context(), &ec2.DeleteVpcInput{VpcId: &s.vpc}))
	c.account.Empty()

	for id, i := range map[string]*instance{vpc: own, s.vpc: adopted} {
		state, private := i.state, i.private
		c.fatal(i.apply(i.plan(nil)))
		i.state, i.private = state, private
		seen := i.look()
		if !i.state.IsNull() || len(seen.warnings) != 1 || !strings.Contains(seen.warnings[0].Detail, id+" of cluster ") {
			t.Errorf("%s: %v, %v", id, i.state, seen.warnings)
		}
	}
	own.must(networkConfig())
	own.settled(networkConfig())
	c.fatal(own.apply(own.plan(nil)))
}

// rules returns a group's rules.
func (s *site) rules(t *testing.T, group string) []types.IpPermission {
	t.Helper()
	return answer[*ec2.DescribeSecurityGroupsOutput](t)(s.api.DescribeSecurityGroups(t.Context(), &ec2.DescribeSecurityGroupsInput{GroupIds: []string{group}})).SecurityGroups[0].IpPermissions
}
