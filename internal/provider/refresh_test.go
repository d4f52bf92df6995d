package provider

import (
	"crypto/rand"
	"fmt"
	"maps"
	"net/netip"
	"strings"
	"sync"
	"testing"
	"time"

	sdk "github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/ec2"
	"github.com/aws/aws-sdk-go-v2/service/ec2/types"

	infraaws "github.com/k8s-from-scratch/terraform-provider-k8s/infra/aws"
	awsmachine "github.com/k8s-from-scratch/terraform-provider-k8s/infra/aws/machine"
	"github.com/k8s-from-scratch/terraform-provider-k8s/internal/e2e/account"
)

// refreshedMachines returns a network with that many machines with pods, as a process finds them that
// knows nothing but the state.
func refreshedMachines(t *testing.T, many int) (c cloud, network *instance, machines []*instance) {
	t.Helper()
	c = newCloud(t)
	network = c.instance("k8s_network")
	network.must(networkConfig())
	ref := network.get("ref").(values)
	subnet := ref["subnets"].([]any)[0].(values)["id"].(string)
	tables := answer[*ec2.DescribeRouteTablesOutput](t)(c.client.EC2.DescribeRouteTables(t.Context(), &ec2.DescribeRouteTablesInput{
		Filters: []types.Filter{{Name: sdk.String("association.subnet-id"), Values: []string{subnet}}}}))
	var ids []string
	address := netip.MustParseAddr("10.240.0.20")
	for n := range many {
		name := fmt.Sprintf("worker-%d", n)
		if _, err := awsmachine.Launch(t.Context(), c.client, awsmachine.Spec{
			Cluster: "demo", Name: name, Role: infraaws.RoleWorker, SubnetID: subnet, SecurityGroupID: ref["security_group_ids"].(values)["worker"].(string),
			PrivateIP: address, InstanceType: "t3.small", Image: account.ImageID, User: "admin", AuthorizedKeys: []string{publicKey(t)},
			Claim: infraaws.NewClaim(fmt.Sprintf("run-%d", n), "test", time.Now()),
		}, rand.Reader); err != nil {
			t.Fatal(err)
		}
		address = address.Next()
	}
	found := answer[*ec2.DescribeInstancesOutput](t)(c.client.EC2.DescribeInstances(t.Context(), &ec2.DescribeInstancesInput{}))
	for _, r := range found.Reservations {
		for _, i := range r.Instances {
			ids = append(ids, *i.InstanceId)
			answer[*ec2.CreateRouteOutput](t)(c.client.EC2.CreateRoute(t.Context(), &ec2.CreateRouteInput{RouteTableId: tables.RouteTables[0].RouteTableId,
				DestinationCidrBlock: sdk.String(fmt.Sprintf("10.200.%d.0/24", len(ids))), NetworkInterfaceId: i.NetworkInterfaces[0].NetworkInterfaceId}))
		}
	}
	answer[*ec2.CreateTagsOutput](t)(c.client.EC2.CreateTags(t.Context(), &ec2.CreateTagsInput{Resources: ids,
		Tags: []types.Tag{{Key: sdk.String(infraaws.TagHostKey), Value: sdk.String(publicKey(t))}}}))
	for _, id := range ids {
		m := c.instance("k8s_machine")
		m.imports(id)
		machines = append(machines, m)
	}
	refreshAll(machines) // settles what was imported
	c = c.process(t)
	network = c.taken(network)
	for n := range machines {
		machines[n] = c.taken(machines[n])
	}
	return c, network, machines
}

// refreshAll refreshes as many resources at a time as Terraform does.
func refreshAll(resources []*instance) {
	slots := make(chan struct{}, 10)
	var all sync.WaitGroup
	for _, r := range resources {
		slots <- struct{}{}
		all.Go(func() { r.refresh(); <-slots })
	}
	all.Wait()
}

// TestRefreshCalls: a refresh asks AWS as often for many machines as for few.
func TestRefreshCalls(t *testing.T) {
	t.Parallel()
	var few map[string]int
	for _, many := range []int{6, 50} {
		c, network, machines := refreshedMachines(t, many)
		network.refresh()
		refreshAll(machines)
		calls := map[string]int{}
		for _, action := range c.calls() {
			calls[action]++
		}
		t.Logf("%d machines: %v", many, calls)
		for _, m := range machines {
			if m.state.IsNull() || m.get("instance_state") != "running" {
				t.Fatalf("%d machines: refreshed as %v", many, m.state)
			}
		}
		if few == nil {
			few = calls
			if calls["DescribeInstances"] != 1 || calls["DescribeVolumes"] != 1 {
				t.Errorf("%d machines: %v", many, calls)
			}
			continue
		}
		if !maps.Equal(calls, few) {
			t.Errorf("%d machines: %v, wanted %v", many, calls, few)
		}
	}
}

// TestRefreshIsTrue: what a refresh shares among machines is never older than the last change of
// this provider, is never told to the same machine twice, and does not decide that one is gone.
func TestRefreshIsTrue(t *testing.T) {
	t.Parallel()
	c, _, machines := refreshedMachines(t, 3)
	refreshAll(machines)
	id := func(m *instance) string { return m.get("id").(string) }

	// Somebody else terminates one: its second refresh asks again.
	answer[*ec2.TerminateInstancesOutput](t)(c.client.EC2.TerminateInstances(t.Context(), &ec2.TerminateInstancesInput{InstanceIds: []string{id(machines[0])}}))
	if machines[0].refresh(); !machines[0].state.IsNull() {
		t.Error("a terminated machine is still there")
	}

	refreshAll(machines[1:]) // these have had what is known now
	// Somebody else takes the tags by which one is found away: it is drift, and the machine is there.
	answer[*ec2.DeleteTagsOutput](t)(c.client.EC2.DeleteTags(t.Context(), &ec2.DeleteTagsInput{Resources: []string{id(machines[1])},
		Tags: []types.Tag{{Key: sdk.String(infraaws.TagCluster)}}}))
	machines[1].refresh()
	drift, _ := machines[1].get("drift").(values)
	if machines[1].state.IsNull() || !strings.Contains(fmt.Sprint(drift), infraaws.TagCluster) {
		t.Errorf("without its tags: drift %v", drift)
	}

	// This provider changes something of one. Another one, which has not had the last answer, is
	// told what is so after that.
	provider, err := c.provider.data[0].AWS(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	answer[*ec2.CreateTagsOutput](t)(provider.EC2.CreateTags(t.Context(), &ec2.CreateTagsInput{Resources: []string{id(machines[2])},
		Tags: []types.Tag{{Key: sdk.String("team"), Value: sdk.String("another")}}}))
	machines[2].refresh()
	if drift, _ := machines[2].get("drift").(values); !strings.Contains(fmt.Sprint(drift), "team") {
		t.Errorf("after a change by this provider: drift %v", drift)
	}
}
