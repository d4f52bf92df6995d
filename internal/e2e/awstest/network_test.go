package awstest

import (
	"context"
	"errors"
	"maps"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	sdk "github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/ec2"
	"github.com/aws/aws-sdk-go-v2/service/ec2/types"

	infraaws "github.com/k8s-from-scratch/terraform-provider-k8s/infra/aws"
	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/aws/network"
	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/finding"
	"github.com/k8s-from-scratch/terraform-provider-k8s/internal/lab/cloud/fault"
)

// ensured creates the network and checks that it has no drift.
func ensured(ctx context.Context, t *testing.T, c *infraaws.Client, spec network.Spec) network.Network {
	t.Helper()
	n, err := network.Ensure(ctx, c, spec)
	if err != nil {
		t.Fatal(err)
	}
	unchanged(ctx, t, c, spec, n)
	return n
}

func unchanged(ctx context.Context, t *testing.T, c *infraaws.Client, spec network.Spec, n network.Network) {
	t.Helper()
	spec.Known = n
	_, drift, err := network.Observe(ctx, c, spec)
	if err != nil {
		t.Fatal(err)
	}
	if len(drift) != 0 {
		t.Fatalf("differs from what was just made: %v", drift)
	}
}

func TestNetworkLifecycle(t *testing.T) {
	t.Parallel()
	a, ctx, w := newAccount(t), deadline(t), &wire{}
	c := a.client(w)
	n := ensured(ctx, t, c, networkSpec())
	if n.VPCID == "" || len(n.Subnets) != 1 || n.Subnets[0].RouteTableID == "" || len(n.SecurityGroups) != len(network.Groups()) {
		t.Fatalf("incomplete: %+v", n)
	}
	t.Logf("made with %d calls", len(w.calls))

	before := len(w.changes())
	again, err := network.Ensure(ctx, c, networkSpec())
	if err != nil {
		t.Fatal(err)
	}
	if again.VPCID != n.VPCID || !maps.Equal(again.SecurityGroups, n.SecurityGroups) {
		t.Errorf("a second run made another network: %+v, then %+v", n, again)
	}
	if did := w.changes()[before:]; len(did) > 0 {
		t.Errorf("a second run changed something: %v", did)
	}

	if err := network.Delete(ctx, c, networkSpec()); err != nil {
		t.Fatal(err)
	}
	a.Empty()
	if _, _, err := network.Observe(ctx, c, networkSpec()); !errors.Is(err, infraaws.ErrNotFound) {
		t.Errorf("after the deletion: %v", err)
	}
	if err := network.Delete(ctx, c, networkSpec()); err != nil {
		t.Errorf("deleting what is gone: %v", err)
	}
}

// TestSecurityGroups compares the rules with DESIGN's table.
func TestSecurityGroups(t *testing.T) {
	t.Parallel()
	a, ctx := newAccount(t), deadline(t)
	c := a.client(&wire{})
	spec := networkSpec()
	spec.NodePortCIDRs = []netip.Prefix{netip.MustParsePrefix("192.0.2.0/24")}
	n := ensured(ctx, t, c, spec)
	names := map[string]string{}
	for role, id := range n.SecurityGroups {
		names[id] = string(role)
	}
	out, err := c.EC2.DescribeSecurityGroupRules(ctx, &ec2.DescribeSecurityGroupRulesInput{
		Filters: []types.Filter{{Name: sdk.String("group-id"), Values: slices.Collect(maps.Keys(names))}},
	})
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, r := range out.SecurityGroupRules {
		if sdk.ToBool(r.IsEgress) {
			continue
		}
		source := sdk.ToString(r.CidrIpv4)
		if r.ReferencedGroupInfo != nil {
			source = names[sdk.ToString(r.ReferencedGroupInfo.GroupId)]
		}
		ports := ""
		if sdk.ToString(r.IpProtocol) != "-1" {
			ports = " " + itoa(r.FromPort) + "-" + itoa(r.ToPort)
		}
		got = append(got, names[sdk.ToString(r.GroupId)]+": "+sdk.ToString(r.IpProtocol)+ports+" from "+source)
	}
	slices.Sort(got)
	want := []string{
		"controller: tcp 2379-2380 from controller",
		"controller: tcp 2379-2380 from etcd",
		"controller: tcp 6443-6443 from 198.51.100.7/32",
		"controller: tcp 6443-6443 from controller",
		"controller: tcp 6443-6443 from lb",
		"controller: tcp 6443-6443 from worker",
		"etcd: tcp 2379-2380 from controller",
		"etcd: tcp 2379-2380 from etcd",
		"lb: tcp 6443-6443 from 198.51.100.7/32",
		"lb: tcp 6443-6443 from controller",
		"lb: tcp 6443-6443 from worker",
		"ssh: tcp 22-22 from 198.51.100.7/32",
		"worker: -1 from controller",
		"worker: -1 from worker",
		"worker: tcp 10250-10250 from controller",
		"worker: tcp 10250-10250 from worker",
		"worker: tcp 30000-32767 from 192.0.2.0/24",
		"worker: udp 30000-32767 from 192.0.2.0/24",
	}
	if !slices.Equal(got, want) {
		t.Errorf("rules:\n%s\nwanted:\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
}

func TestNetworkDrift(t *testing.T) {
	t.Parallel()
	a, ctx, w := newAccount(t), deadline(t), &wire{}
	c := a.client(w)
	n := ensured(ctx, t, c, networkSpec())
	api := c.EC2
	worker, lb := n.SecurityGroups[infraaws.RoleWorker], n.SecurityGroups[infraaws.RoleLoadBalancer]
	open := []types.IpPermission{{
		IpProtocol: sdk.String("tcp"), FromPort: sdk.Int32(23), ToPort: sdk.Int32(23),
		IpRanges: []types.IpRange{{CidrIp: sdk.String("0.0.0.0/0")}},
	}}
	for _, test := range []struct {
		name   string
		damage func() error
		thing  string
		words  string
		calls  []string // of the repair
	}{{
		"a rule added", func() error {
			_, err := api.AuthorizeSecurityGroupIngress(ctx, &ec2.AuthorizeSecurityGroupIngressInput{GroupId: &worker, IpPermissions: open})
			return err
		}, "security group worker", "rule tcp 23 from 0.0.0.0/0: not wanted", []string{"RevokeSecurityGroupIngress"},
	}, {
		"a rule removed", func() error {
			_, err := api.RevokeSecurityGroupIngress(ctx, &ec2.RevokeSecurityGroupIngressInput{GroupId: &lb, IpPermissions: []types.IpPermission{{
				IpProtocol: sdk.String("tcp"), FromPort: sdk.Int32(6443), ToPort: sdk.Int32(6443),
				UserIdGroupPairs: []types.UserIdGroupPair{{GroupId: &worker}},
			}}})
			return err
		}, "security group lb", "rule tcp 6443 from group worker: missing", []string{"AuthorizeSecurityGroupIngress"},
	}, {
		"outgoing traffic closed", func() error {
			_, err := api.RevokeSecurityGroupEgress(ctx, &ec2.RevokeSecurityGroupEgressInput{GroupId: &worker, IpPermissions: []types.IpPermission{{
				IpProtocol: sdk.String("-1"), IpRanges: []types.IpRange{{CidrIp: sdk.String("0.0.0.0/0")}},
			}}})
			return err
		}, "security group worker", "rule outgoing all traffic to 0.0.0.0/0: missing", []string{"AuthorizeSecurityGroupEgress"},
	}, {
		"the way out deleted", func() error {
			_, err := api.DeleteRoute(ctx, &ec2.DeleteRouteInput{RouteTableId: &n.Subnets[0].RouteTableID, DestinationCidrBlock: sdk.String("0.0.0.0/0")})
			return err
		}, "route table public", "route 0.0.0.0/0: missing, wanted " + n.InternetGatewayID, []string{"CreateRoute"},
	}, {
		"the gateway detached", func() error {
			_, err := api.DetachInternetGateway(ctx, &ec2.DetachInternetGatewayInput{InternetGatewayId: &n.InternetGatewayID, VpcId: &n.VPCID})
			return err
		}, "internet gateway", "not attached to the VPC", nil,
	}, {
		"no public addresses", func() error {
			_, err := api.ModifySubnetAttribute(ctx, &ec2.ModifySubnetAttributeInput{
				SubnetId: &n.Subnets[0].ID, MapPublicIpOnLaunch: &types.AttributeBooleanValue{Value: sdk.Bool(false)},
			})
			return err
		}, "subnet node-0", "machines get no public address by default, wanted one", []string{"ModifySubnetAttribute"},
	}, {
		"a tag changed", func() error {
			_, err := api.CreateTags(ctx, &ec2.CreateTagsInput{Resources: []string{n.VPCID}, Tags: []types.Tag{{Key: sdk.String("owner"), Value: sdk.String("nobody")}}})
			return err
		}, "vpc", `tag owner: found "nobody", wanted "teacher"`, []string{"CreateTags"},
	}, {
		"the cluster's tag removed", func() error {
			_, err := api.DeleteTags(ctx, &ec2.DeleteTagsInput{Resources: []string{n.VPCID, worker}, Tags: []types.Tag{{Key: sdk.String(infraaws.TagCluster)}}})
			return err
		}, "vpc", `tag k8s-from-scratch/cluster: missing, wanted "demo"`, []string{"CreateTags", "CreateTags"},
	}, {
		"another route table", func() error {
			out, err := api.DescribeRouteTables(ctx, &ec2.DescribeRouteTablesInput{RouteTableIds: []string{n.Subnets[0].RouteTableID}})
			if err != nil {
				return err
			}
			_, err = api.DisassociateRouteTable(ctx, &ec2.DisassociateRouteTableInput{AssociationId: out.RouteTables[0].Associations[0].RouteTableAssociationId})
			return err
		}, "route table public", "not associated with subnet node-0", []string{"AssociateRouteTable"},
	}} {
		t.Run(test.name, func(t *testing.T) {
			if err := test.damage(); err != nil {
				t.Fatal(err)
			}
			spec := networkSpec()
			spec.Known = n
			_, found, err := network.Observe(ctx, c, spec)
			if err != nil {
				t.Fatal(err)
			}
			drift := finding.BySubject(found)
			if got := drift[test.thing]; got != test.words {
				t.Errorf("drift %v\nwanted %s: %s", drift, test.thing, test.words)
			}
			before := len(w.changes())
			if _, err := network.Ensure(ctx, c, spec); err != nil {
				t.Fatal(err)
			}
			if did := w.changes()[before:]; test.calls != nil && !slices.Equal(did, test.calls) {
				t.Errorf("repaired with %v, wanted %v", did, test.calls)
			}
			unchanged(ctx, t, c, networkSpec(), n)
		})
	}
}

// TestNetworkChange changes everything that can be changed in place.
func TestNetworkChange(t *testing.T) {
	t.Parallel()
	a, ctx := newAccount(t), deadline(t)
	c := a.client(&wire{})
	n := ensured(ctx, t, c, networkSpec())
	spec := networkSpec()
	spec.AdminCIDRs = []netip.Prefix{netip.MustParsePrefix("192.0.2.1/32"), netip.MustParsePrefix("192.0.2.2/32")}
	spec.Tags, spec.RemoveTags, spec.Known = map[string]string{"room": "12"}, []string{"owner"}, n
	if _, err := network.Ensure(ctx, c, spec); err != nil {
		t.Fatal(err)
	}
	unchanged(ctx, t, c, spec, n)
	out, err := c.EC2.DescribeTags(ctx, &ec2.DescribeTagsInput{Filters: []types.Filter{{Name: sdk.String("key"), Values: []string{"owner"}}}})
	if err != nil {
		t.Fatal(err)
	}
	if len(out.Tags) > 0 {
		t.Errorf("the removed tag is still on %d resources", len(out.Tags))
	}
}

// TestAdoptedVPC creates security groups in an existing VPC and changes nothing else there.
func TestAdoptedVPC(t *testing.T) {
	t.Parallel()
	a, ctx, w := newAccount(t), deadline(t), &wire{}
	c := a.client(w)
	foreign := ensured(ctx, t, c, network.Spec{
		Cluster: "foreign", VPCCIDR: netip.MustParsePrefix("10.0.0.0/16"), NodeCIDR: netip.MustParsePrefix("10.0.1.0/24"), AdminCIDRs: admins,
	})
	total := a.Cloud.Overview().Total
	spec := network.Spec{Cluster: "demo", VPCID: foreign.VPCID, SubnetIDs: []string{foreign.Subnets[0].ID}, AdminCIDRs: admins}
	n := ensured(ctx, t, c, spec)
	if n.Subnets[0].RouteTableID != foreign.Subnets[0].RouteTableID || n.SecurityGroups[infraaws.RoleWorker] == foreign.SecurityGroups[infraaws.RoleWorker] {
		t.Errorf("adopted %+v of %+v", n, foreign)
	}
	if got := a.Cloud.Overview().Total; got != total+len(network.Groups()) {
		t.Errorf("%d things, wanted one for each role more than %d", got, total)
	}
	if err := network.Delete(ctx, c, spec); err != nil {
		t.Fatal(err)
	}
	if got := a.Cloud.Overview().Total; got != total {
		t.Errorf("%d things after the deletion, wanted %d", got, total)
	}
}

func itoa(p *int32) string { return strconv.Itoa(int(sdk.ToInt32(p))) }

// TestHiddenRule adds the missing rules of a group of which EC2 has one that it does not show yet: it refuses them all
// together (InvalidPermission.Duplicate).
func TestHiddenRule(t *testing.T) {
	t.Parallel()
	a, ctx := newAccount(t), deadline(t)
	c := a.client(&wire{})
	n := ensured(ctx, t, c, networkSpec())
	group := n.SecurityGroups[infraaws.RoleWorker]
	look := func() []types.IpPermission {
		out, err := c.EC2.DescribeSecurityGroups(ctx, &ec2.DescribeSecurityGroupsInput{GroupIds: []string{group}})
		if err != nil {
			t.Fatal(err)
		}
		return out.SecurityGroups[0].IpPermissions
	}
	had := look()
	if _, err := c.EC2.RevokeSecurityGroupIngress(ctx, &ec2.RevokeSecurityGroupIngressInput{GroupId: &group, IpPermissions: had}); err != nil {
		t.Fatal(err)
	}
	a.Fault(fault.Fault{Kind: fault.Eventual, Action: "AuthorizeSecurityGroupIngress", Milliseconds: 2000, Count: 1})
	if _, err := c.EC2.AuthorizeSecurityGroupIngress(ctx, &ec2.AuthorizeSecurityGroupIngressInput{GroupId: &group, IpPermissions: had[:1]}); err != nil {
		t.Fatal(err)
	}
	if len(look()) != 0 {
		t.Fatal("the rule is shown")
	}
	known := networkSpec()
	known.Known = n
	if _, err := network.Ensure(ctx, c, known); err != nil {
		t.Fatal(err)
	}
	time.Sleep(2 * time.Second)
	unchanged(ctx, t, c, known, n)
}
