package awstest

import (
	"context"
	"fmt"
	"testing"

	"github.com/aws/aws-sdk-go-v2/service/ec2"
	"github.com/aws/aws-sdk-go-v2/service/ec2/types"

	infraaws "github.com/k8s-from-scratch/terraform-provider-k8s/infra/aws"
	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/aws/network"
	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/finding"
)

func connectSpec() network.Spec {
	spec := networkSpec()
	spec.InstanceConnect = true
	return spec
}

// sshFrom returns the groups from which SSH to a group is open.
func (a lab) sshFrom(ctx context.Context, c *infraaws.Client, group string) (out []string) {
	a.t.Helper()
	found, err := c.EC2.DescribeSecurityGroups(ctx, &ec2.DescribeSecurityGroupsInput{GroupIds: []string{group}})
	if err != nil {
		a.t.Fatal(err)
	}
	for _, p := range found.SecurityGroups[0].IpPermissions {
		for _, pair := range p.UserIdGroupPairs {
			if itoa(p.FromPort) == "22" {
				out = append(out, *pair.GroupId)
			}
		}
	}
	return out
}

// TestConnectEndpoint makes, damages, repairs and removes the endpoint of a network.
func TestConnectEndpoint(t *testing.T) {
	t.Parallel()
	a := newAccount(t)
	c, ctx := a.client(&wire{}), deadline(t)
	n := ensured(ctx, t, c, connectSpec())
	if n.Connect.EndpointID == "" || n.Connect.SecurityGroupID == "" || len(n.SecurityGroups) != len(network.Groups()) {
		t.Fatalf("made: %+v", n)
	}
	if from := a.sshFrom(ctx, c, n.SecurityGroups[network.GroupSSH]); len(from) != 1 || from[0] != n.Connect.SecurityGroupID {
		t.Errorf("SSH is open from %v", from)
	}
	found, spec, err := network.Find(ctx, c, "demo")
	if err != nil || found.Connect != n.Connect || !spec.InstanceConnect || spec.BastionRole != "" {
		t.Errorf("found %+v, %+v, %v", found.Connect, spec, err)
	}

	// Somebody deletes it.
	known := connectSpec()
	known.Known = n
	if _, err := c.EC2.DeleteInstanceConnectEndpoint(ctx, &ec2.DeleteInstanceConnectEndpointInput{InstanceConnectEndpointId: &n.Connect.EndpointID}); err != nil {
		t.Fatal(err)
	}
	_, drift, err := network.Observe(ctx, c, known)
	if err != nil || len(drift) != 1 || drift[0].Kind != finding.InstanceConnect || drift[0].Problem != finding.Missing {
		t.Errorf("after its deletion: %v, %v", drift, err)
	}
	again := ensured(ctx, t, c, known)
	if again.Connect.EndpointID == n.Connect.EndpointID || again.Connect.SecurityGroupID != n.Connect.SecurityGroupID {
		t.Errorf("repaired: %+v", again.Connect)
	}

	// Its tags and those of its group are lost.
	known.Known = again
	if _, err := c.EC2.DeleteTags(ctx, &ec2.DeleteTagsInput{Resources: []string{again.Connect.EndpointID, again.Connect.SecurityGroupID}}); err != nil {
		t.Fatal(err)
	}
	if same := ensured(ctx, t, c, known); same.Connect != again.Connect {
		t.Errorf("without tags: %+v", same.Connect)
	}

	// It is being deleted, and not wanted any more: its group goes after it.
	if _, err := c.EC2.DeleteInstanceConnectEndpoint(ctx, &ec2.DeleteInstanceConnectEndpointInput{InstanceConnectEndpointId: &again.Connect.EndpointID}); err != nil {
		t.Fatal(err)
	}

	unwanted := networkSpec()
	unwanted.Known = again
	none := ensured(ctx, t, c, unwanted)
	if none.Connect != (network.ConnectParts{}) {
		t.Errorf("not wanted any more: %+v", none.Connect)
	}
	for role, group := range none.SecurityGroups {
		if from := a.sshFrom(ctx, c, group); len(from) > 0 {
			t.Errorf("SSH to %s is still open from %v", role, from)
		}
	}
	unwanted.Known = none
	if err := network.Delete(ctx, c, unwanted); err != nil {
		t.Fatal(err)
	}
	a.Empty()
}

// TestConnectEndpointBesideNAT checks that the endpoint takes no address of a subnet for machines.
func TestConnectEndpointBesideNAT(t *testing.T) {
	t.Parallel()
	a := newAccount(t)
	c, ctx := a.client(&wire{}), deadline(t)
	spec := privateSpec()
	spec.InstanceConnect = true
	n := ensured(ctx, t, c, spec)
	out, err := c.EC2.DescribeInstanceConnectEndpoints(ctx, &ec2.DescribeInstanceConnectEndpointsInput{InstanceConnectEndpointIds: []string{n.Connect.EndpointID}})
	if err != nil {
		t.Fatal(err)
	}
	for _, s := range n.Subnets {
		if s.ID == *out.InstanceConnectEndpoints[0].SubnetId && !s.Public {
			t.Errorf("it is in %s, for machines", s.CIDR)
		}
	}
	spec.Known = n
	if err := network.Delete(ctx, c, spec); err != nil {
		t.Fatal(err)
	}
	a.Empty()
}

// TestConnectEndpointOfAnother: a VPC has one endpoint at most, and one of somebody else stays.
func TestConnectEndpointOfAnother(t *testing.T) {
	t.Parallel()
	a := newAccount(t)
	c, ctx := a.client(&wire{}), deadline(t)
	n := ensured(ctx, t, c, networkSpec())
	other, err := c.EC2.CreateInstanceConnectEndpoint(ctx, &ec2.CreateInstanceConnectEndpointInput{SubnetId: &n.Subnets[0].ID})
	if err != nil {
		t.Fatal(err)
	}
	spec := connectSpec()
	spec.Known = n
	if _, err := network.Ensure(ctx, c, spec); err == nil || infraaws.ErrorCode(err) != "ResourceLimitExceeded" {
		t.Errorf("beside another: %v", err)
	}
	out, err := c.EC2.DescribeInstanceConnectEndpoints(ctx, &ec2.DescribeInstanceConnectEndpointsInput{InstanceConnectEndpointIds: []string{*other.InstanceConnectEndpoint.InstanceConnectEndpointId}})
	if err != nil || out.InstanceConnectEndpoints[0].State == types.Ec2InstanceConnectEndpointStateDeleteInProgress {
		t.Errorf("the other one: %v", err)
	}
}

// TestConnectEndpointKilledAnywhere kills the process at every call of the creation. The next run ends with
// one endpoint, and its deletion leaves nothing.
func TestConnectEndpointKilledAnywhere(t *testing.T) {
	t.Parallel()
	account, counted := newAccount(t), &wire{}
	n, err := network.Ensure(deadline(t), account.client(counted), connectSpec())
	if err != nil {
		t.Fatal(err)
	}
	known := connectSpec()
	known.Known = n
	if err := network.Delete(deadline(t), account.client(&wire{}), known); err != nil {
		t.Fatal(err)
	}
	account.Empty()
	for at := range counted.count() {
		for _, arrives := range []bool{false, true} {
			t.Run(fmt.Sprintf("call %d arrives %v", at+1, arrives), func(t *testing.T) {
				t.Parallel()
				a := newAccount(t)
				ctx, cancel := context.WithCancel(deadline(t))
				defer cancel()
				dying := &wire{dieAt: at + 1, arrives: arrives, cancel: cancel}
				if _, err := network.Ensure(ctx, a.client(dying), connectSpec()); err == nil {
					t.Skipf("it made only %d calls this time", dying.count()) // how often it polls varies
				}
				ctx = deadline(t)
				c := a.client(&wire{})
				n, err := network.Ensure(ctx, c, connectSpec())
				if err != nil {
					t.Fatalf("after %v: %v", dying.calls, err)
				}
				unchanged(ctx, t, c, connectSpec(), n)
				if o := a.Cloud.Overview(); len(o.VPCs) != 1 || len(o.ConnectEndpoints) != 1 {
					t.Errorf("after dying at %v: %d VPCs, %d endpoints", dying.calls, len(o.VPCs), len(o.ConnectEndpoints))
				}
				known := connectSpec()
				known.Known = n
				if err := network.Delete(ctx, c, known); err != nil {
					t.Fatal(err)
				}
				a.Empty()
			})
		}
	}
}
