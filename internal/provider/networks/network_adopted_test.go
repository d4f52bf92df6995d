package networks_test

import (
	"strings"
	"testing"

	sdk "github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/ec2"
	"github.com/aws/aws-sdk-go-v2/service/ec2/types"

	awsnetwork "github.com/k8s-from-scratch/terraform-provider-k8s/infra/aws/network"
	"github.com/k8s-from-scratch/terraform-provider-k8s/internal/lab/cloud/fault"
	"github.com/k8s-from-scratch/terraform-provider-k8s/internal/provider/providertest"
)

// TestTwoRouteTables checks that pods of a machine in one subnet are reached from the other subnet,
// which has another route table.
func TestTwoRouteTables(t *testing.T) {
	t.Parallel()
	c := providertest.NewCloud(t)
	s := providertest.NewSite(t, c)
	network, first, second := c.Instance("k8s_network"), c.Instance("k8s_machine"), c.Instance("k8s_machine")
	network.Must(s.Network(s.A, s.B))
	network.Converged(s.Network(s.A, s.B))
	configs := func() (providertest.Values, providertest.Values) {
		other := providertest.WorkerConfig(network)
		other["name"], other["private_ip"], other["pod_cidr"] = "worker-1", "10.240.1.20", "10.200.1.0/24"
		return providertest.WorkerConfig(network), other
	}
	one, two := configs()
	first.Must(one)
	second.Must(two)
	everywhere := func(tables ...string) {
		t.Helper()
		for _, table := range tables {
			if got := s.Routes(t, table); got != "10.200.0.0/24 10.200.1.0/24" {
				t.Errorf("routes in %s: %s", table, got)
			}
		}
		first.Converged(one)
		second.Converged(two)
	}
	everywhere(s.TableA, s.Main)

	// A route that is missing in only one table is drift.
	if _, err := s.API.DeleteRoute(t.Context(), &ec2.DeleteRouteInput{RouteTableId: &s.Main, DestinationCidrBlock: sdk.String("10.200.0.0/24")}); err != nil {
		t.Fatal(err)
	}
	first.Refresh()
	if got := first.Drift(); !strings.HasPrefix(got, "worker-0: route 10.200.0.0/24 in "+s.Main+": missing, wanted eni-") {
		t.Errorf("drift %s", got)
	}
	first.Must(one)
	everywhere(s.TableA, s.Main)

	// So is a route table that is newly associated with a subnet. The previous table no longer
	// needs the routes.
	third := s.Table(t)
	if _, err := s.API.AssociateRouteTable(t.Context(), &ec2.AssociateRouteTableInput{RouteTableId: &third, SubnetId: &s.B}); err != nil {
		t.Fatal(err)
	}
	network.Refresh()
	one, two = configs()
	for _, m := range []*providertest.Instance{first, second} {
		m.Refresh()
		if got := m.Drift(); !strings.Contains(got, " in "+third+": missing, wanted eni-") || !strings.Contains(got, " in "+s.Main+": not wanted") {
			t.Errorf("drift %s", got)
		}
	}
	first.Must(one)
	second.Must(two)
	everywhere(s.TableA, third)
	if got := s.Routes(t, s.Main); got != "" {
		t.Errorf("routes left in %s: %s", s.Main, got)
	}

	// Deleting a machine deletes only its own routes.
	if _, err := s.API.CreateRoute(t.Context(), &ec2.CreateRouteInput{RouteTableId: &third, DestinationCidrBlock: sdk.String("192.0.2.0/24"), InstanceId: sdk.String(second.Get("id").(string))}); err != nil {
		t.Fatal(err)
	}
	c.Fatal(first.Apply(first.Plan(nil)))
	if a, b := s.Routes(t, s.TableA), s.Routes(t, third); a != "10.200.1.0/24" || b != "10.200.1.0/24 192.0.2.0/24" {
		t.Errorf("routes %s and %s", a, b)
	}
	c.Fatal(second.Apply(second.Plan(nil)))
	c.Fatal(network.Apply(network.Plan(nil)))
	if a, b := s.Routes(t, s.TableA), s.Routes(t, third); a != "" || b != "192.0.2.0/24" {
		t.Errorf("routes %s and %s", a, b)
	}
}

// TestSubnetsOfTheAdopted changes subnet_ids, and deletes a subnet outside Terraform.
func TestSubnetsOfTheAdopted(t *testing.T) {
	t.Parallel()
	c := providertest.NewCloud(t)
	s := providertest.NewSite(t, c)
	network, worker := c.Instance("k8s_network"), c.Instance("k8s_machine")
	network.Must(s.Network(s.A))
	worker.Must(providertest.WorkerConfig(network))
	id := worker.Get("id")

	network.Must(s.Network(s.A, s.B))
	network.Converged(s.Network(s.A, s.B))
	if ch := worker.Plan(providertest.WorkerConfig(network)); len(ch.Replace) > 0 {
		t.Fatalf("a further subnet would replace the machine: %v", ch.Replace)
	}
	worker.Must(providertest.WorkerConfig(network))
	worker.Converged(providertest.WorkerConfig(network))
	if got := s.Routes(t, s.Main); got != "10.200.0.0/24" {
		t.Errorf("routes in the table of the further subnet: %s", got)
	}

	if _, err := s.API.DeleteSubnet(t.Context(), &ec2.DeleteSubnetInput{SubnetId: &s.B}); err != nil {
		t.Fatal(err)
	}
	network.Refresh()
	if got := network.Drift(); got != "subnet "+s.B+": missing in "+s.Vpc {
		t.Errorf("drift %s", got)
	}
	ch := network.Plan(s.Network(s.A, s.B))
	if got := (providertest.Change{Errors: append(ch.Errors, network.Apply(ch)...)}).Failure(); !strings.Contains(got, s.B) || !strings.Contains(got, "subnet_ids") {
		t.Errorf("an apply that wants the deleted subnet: %s", got)
	}
	network.Refresh()
	network.Must(s.Network(s.A))
	network.Converged(s.Network(s.A))
	worker.Must(providertest.WorkerConfig(network))
	worker.Converged(providertest.WorkerConfig(network))
	if worker.Get("id") != id {
		t.Error("the machine was replaced")
	}
	if got := s.Routes(t, s.Main); got != "" {
		t.Errorf("routes left in the main table: %s", got)
	}
	c.Fatal(worker.Apply(worker.Plan(nil)))

	// A network whose VPC was deleted can still be refreshed and destroyed. Other subnets of the
	// VPC do not belong to the network.
	s.Subnet(t, "10.240.7.0/24")
	if _, err := s.API.DeleteSubnet(t.Context(), &ec2.DeleteSubnetInput{SubnetId: &s.A}); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		network.Refresh()
		if ids, _ := network.Get("subnet_ids").([]any); len(ids) > 0 {
			t.Errorf("subnets %v", ids)
		}
		if ch := network.Plan(s.Network(s.A)); len(ch.Errors) > 0 || network.Empty(ch) {
			t.Errorf("the plan is empty, or fails: %s", ch.Failure())
		}
	}
	c.Fatal(network.Apply(network.Plan(nil)))
	if o := c.Account.Cloud.Overview(); o.Total != 5 { // the VPC, its default group, a subnet and two tables
		t.Errorf("left behind: %+v", o)
	}
}

// TestRoutesOfFailedUpdate checks that a route created by a failed update is deleted when its
// subnet leaves the network again.
func TestRoutesOfFailedUpdate(t *testing.T) {
	t.Parallel()
	c := providertest.NewCloud(t)
	s := providertest.NewSite(t, c)
	network, worker := c.Instance("k8s_network"), c.Instance("k8s_machine")
	network.Must(s.Network(s.A))
	worker.Must(providertest.WorkerConfig(network))

	network.Must(s.Network(s.A, s.B))
	c.Account.Fault(fault.Fault{Kind: fault.Fail, Action: "StopInstances", Code: "UnsupportedOperation", Message: "Not now."})
	config := providertest.WorkerConfig(network)
	config["instance_type"] = "t3.large"
	if diags := worker.Apply(worker.Plan(config)); len(diags) == 0 {
		t.Fatal("the update did not fail")
	}
	c.Account.Calm()
	if got := s.Routes(t, s.Main); got != "10.200.0.0/24" {
		t.Fatalf("routes in the table of the further subnet: %s", got)
	}

	network.Must(s.Network(s.A))
	worker.Refresh()
	if got := worker.Drift(); !strings.Contains(got, " in "+s.Main+": not wanted") {
		t.Errorf("drift %s", got)
	}
	worker.Must(providertest.WorkerConfig(network))
	worker.Converged(providertest.WorkerConfig(network))
	if got := s.Routes(t, s.Main); got != "" {
		t.Errorf("routes left in the main table: %s", got)
	}
}

// TestTableOfDeletedSubnet checks that machines want no routes for a deleted subnet. The missing
// subnet is drift of the network.
func TestTableOfDeletedSubnet(t *testing.T) {
	t.Parallel()
	c := providertest.NewCloud(t)
	s := providertest.NewSite(t, c)
	table := s.Table(t)
	providertest.Answer[*ec2.AssociateRouteTableOutput](t)(s.API.AssociateRouteTable(t.Context(), &ec2.AssociateRouteTableInput{RouteTableId: &table, SubnetId: &s.B}))
	network, worker := c.Instance("k8s_network"), c.Instance("k8s_machine")
	network.Must(s.Network(s.A, s.B))
	worker.Must(providertest.WorkerConfig(network))
	providertest.Answer[*ec2.DeleteSubnetOutput](t)(s.API.DeleteSubnet(t.Context(), &ec2.DeleteSubnetInput{SubnetId: &s.B}))
	worker.Refresh()
	if got := worker.Drift(); got != "worker-0: route 10.200.0.0/24 in "+table+": not wanted" {
		t.Errorf("drift %s", got)
	}
}

// TestPartsDeleted deletes parts of the cluster's own network outside Terraform. The plan says so,
// apply creates them again, and destroy succeeds without them.
func TestPartsDeleted(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		name   string
		remove func(t *testing.T, api *ec2.Client, network *providertest.Instance)
		says   string
	}{
		{"route table", func(t *testing.T, api *ec2.Client, network *providertest.Instance) {
			removeTable(t, api, network.Get("vpc_id").(string))
		}, "route table public: missing"},
		{"internet gateway", func(t *testing.T, api *ec2.Client, network *providertest.Instance) {
			removeGateway(t, api, network.Get("vpc_id").(string))
		}, "internet gateway: missing"},
		{"subnet", func(t *testing.T, api *ec2.Client, network *providertest.Instance) {
			providertest.Answer[*ec2.DeleteSubnetOutput](t)(api.DeleteSubnet(t.Context(), &ec2.DeleteSubnetInput{SubnetId: sdk.String(network.Get("subnet_id").(string))}))
		}, "subnet node-0: missing"},
		{"all but the VPC", func(t *testing.T, api *ec2.Client, network *providertest.Instance) {
			removeTable(t, api, network.Get("vpc_id").(string))
			removeGateway(t, api, network.Get("vpc_id").(string))
			providertest.Answer[*ec2.DeleteSubnetOutput](t)(api.DeleteSubnet(t.Context(), &ec2.DeleteSubnetInput{SubnetId: sdk.String(network.Get("subnet_id").(string))}))
		}, "internet gateway: missing\nroute table public: missing\nsubnet node-0: missing"},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			c := providertest.NewCloud(t)
			network, worker := c.Instance("k8s_network"), c.Instance("k8s_machine")
			network.Must(providertest.NetworkConfig())
			// EC2 does not delete a subnet with machines, or detach a gateway that public addresses
			// need.
			keepsMachine := test.name == "route table"
			if keepsMachine {
				worker.Must(providertest.WorkerConfig(network))
			}
			for _, repair := range []bool{true, false} {
				test.remove(t, c.Client.EC2, network)
				network.Refresh()
				if got := network.Drift(); got != test.says {
					t.Errorf("drift %q, wanted %q", got, test.says)
				}
				if keepsMachine {
					worker.Refresh()
					if ch := worker.Plan(providertest.WorkerConfig(network)); len(ch.Errors) > 0 || len(ch.Replace) > 0 {
						t.Errorf("machine: %s, replaced for %v", ch.Failure(), ch.Replace)
					}
				}
				if !repair {
					break
				}
				network.Must(providertest.NetworkConfig())
				network.Converged(providertest.NetworkConfig())
				if keepsMachine {
					worker.Must(providertest.WorkerConfig(network))
					worker.Converged(providertest.WorkerConfig(network))
				}
			}
			if keepsMachine {
				c.Fatal(worker.Apply(worker.Plan(nil)))
			}
			c.Fatal(network.Apply(network.Plan(nil)))
			c.Account.Empty()
		})
	}
}

func removeTable(t *testing.T, api *ec2.Client, vpc string) {
	t.Helper()
	out := providertest.Answer[*ec2.DescribeRouteTablesOutput](t)(api.DescribeRouteTables(t.Context(), &ec2.DescribeRouteTablesInput{Filters: []types.Filter{
		{Name: sdk.String("vpc-id"), Values: []string{vpc}}, {Name: sdk.String("association.main"), Values: []string{"false"}}}}))
	table := out.RouteTables[0]
	providertest.Answer[*ec2.DisassociateRouteTableOutput](t)(api.DisassociateRouteTable(t.Context(), &ec2.DisassociateRouteTableInput{AssociationId: table.Associations[0].RouteTableAssociationId}))
	providertest.Answer[*ec2.DeleteRouteTableOutput](t)(api.DeleteRouteTable(t.Context(), &ec2.DeleteRouteTableInput{RouteTableId: table.RouteTableId}))
}

func removeGateway(t *testing.T, api *ec2.Client, vpc string) {
	t.Helper()
	out := providertest.Answer[*ec2.DescribeInternetGatewaysOutput](t)(api.DescribeInternetGateways(t.Context(), &ec2.DescribeInternetGatewaysInput{Filters: []types.Filter{
		{Name: sdk.String("attachment.vpc-id"), Values: []string{vpc}}}}))
	id := out.InternetGateways[0].InternetGatewayId
	providertest.Answer[*ec2.DetachInternetGatewayOutput](t)(api.DetachInternetGateway(t.Context(), &ec2.DetachInternetGatewayInput{InternetGatewayId: id, VpcId: &vpc}))
	providertest.Answer[*ec2.DeleteInternetGatewayOutput](t)(api.DeleteInternetGateway(t.Context(), &ec2.DeleteInternetGatewayInput{InternetGatewayId: id}))
}

// TestIgnoreRules checks that a foreign rule is kept only while ignore_rules matches it.
func TestIgnoreRules(t *testing.T) {
	t.Parallel()
	c := providertest.NewCloud(t)
	network := c.Instance("k8s_network")
	network.Must(providertest.NetworkConfig())
	worker := network.Get("security_group_ids").(providertest.Values)["worker"].(string)
	providertest.Answer[*ec2.AuthorizeSecurityGroupIngressOutput](t)(c.Client.EC2.AuthorizeSecurityGroupIngress(t.Context(), &ec2.AuthorizeSecurityGroupIngressInput{
		GroupId: &worker, IpPermissions: []types.IpPermission{{IpProtocol: sdk.String("tcp"), FromPort: sdk.Int32(80), ToPort: sdk.Int32(80),
			IpRanges: []types.IpRange{{CidrIp: sdk.String("0.0.0.0/0"), Description: sdk.String("elbv2.k8s.aws/targetGroupBinding=shared")}}}}}))
	config := providertest.NetworkConfig()
	config["ignore_rules"] = providertest.Values{"description_prefixes": []any{"elbv2.k8s.aws/"}}
	network.Must(config)
	network.Converged(config)
	network.Must(providertest.NetworkConfig())
	network.Refresh()
	if got := network.Drift(); got != "" {
		t.Errorf("the rule was to be removed, drift is %s", got)
	}
	c.Fatal(network.Apply(network.Plan(nil)))
	c.Account.Empty()
}

// TestNetworkGone deletes a whole network outside Terraform, including the VPC. Destroy succeeds,
// and after a refresh with a warning apply creates it again.
func TestNetworkGone(t *testing.T) {
	t.Parallel()
	c := providertest.NewCloud(t)
	own, adopted := c.Instance("k8s_network"), c.Instance("k8s_network")
	s := providertest.NewSite(t, c)
	own.Must(providertest.NetworkConfig())
	other := s.Network(s.A, s.B)
	other["cluster"] = "other"
	adopted.Must(other)

	vpc := own.Get("vpc_id").(string)
	if err := awsnetwork.Delete(t.Context(), c.Client, awsnetwork.Spec{Cluster: "demo", Claim: providertest.ClaimOf(t, own)}); err != nil {
		t.Fatal(err)
	}
	for _, id := range adopted.Get("security_group_ids").(providertest.Values) {
		providertest.Answer[*ec2.RevokeSecurityGroupIngressOutput](t)(s.API.RevokeSecurityGroupIngress(t.Context(), &ec2.RevokeSecurityGroupIngressInput{
			GroupId: sdk.String(id.(string)), IpPermissions: s.Rules(t, id.(string))}))
	}
	for _, id := range adopted.Get("security_group_ids").(providertest.Values) {
		providertest.Answer[*ec2.DeleteSecurityGroupOutput](t)(s.API.DeleteSecurityGroup(t.Context(), &ec2.DeleteSecurityGroupInput{GroupId: sdk.String(id.(string))}))
	}
	for _, id := range []string{s.A, s.B} {
		providertest.Answer[*ec2.DeleteSubnetOutput](t)(s.API.DeleteSubnet(t.Context(), &ec2.DeleteSubnetInput{SubnetId: &id}))
	}
	providertest.Answer[*ec2.DeleteRouteTableOutput](t)(s.API.DeleteRouteTable(t.Context(), &ec2.DeleteRouteTableInput{RouteTableId: &s.TableA}))
	providertest.Answer[*ec2.DeleteVpcOutput](t)(s.API.DeleteVpc(t.Context(), &ec2.DeleteVpcInput{VpcId: &s.Vpc}))
	c.Account.Empty()

	for id, i := range map[string]*providertest.Instance{vpc: own, s.Vpc: adopted} {
		state, private := i.State, i.Private
		c.Fatal(i.Apply(i.Plan(nil)))
		i.State, i.Private = state, private
		seen := i.Look()
		if !i.State.IsNull() || len(seen.Warnings) != 1 || !strings.Contains(seen.Warnings[0].Detail, id+" of cluster ") {
			t.Errorf("%s: %v, %v", id, i.State, seen.Warnings)
		}
	}
	own.Must(providertest.NetworkConfig())
	own.Converged(providertest.NetworkConfig())
	c.Fatal(own.Apply(own.Plan(nil)))
}
