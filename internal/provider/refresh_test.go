package provider_test

import (
	"crypto/rand"
	"fmt"
	"net/netip"
	"strings"
	"testing"
	"time"

	sdk "github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/ec2"
	"github.com/aws/aws-sdk-go-v2/service/ec2/types"
	"golang.org/x/crypto/ssh"

	infraaws "github.com/k8s-from-scratch/terraform-provider-k8s/infra/aws"
	awsmachine "github.com/k8s-from-scratch/terraform-provider-k8s/infra/aws/machine"
	"github.com/k8s-from-scratch/terraform-provider-k8s/internal/e2e/account"
	"github.com/k8s-from-scratch/terraform-provider-k8s/internal/provider/providertest"
)

// refreshedMachines returns a network with that many machines with pods, as a process that knows
// only the state finds them.
func refreshedMachines(t *testing.T, many int) (c providertest.Cloud, network *providertest.Instance, machines []*providertest.Instance) {
	t.Helper()
	c = providertest.NewCloud(t)
	network = c.Instance("k8s_network")
	network.Must(providertest.NetworkConfig())
	ref := network.Get("ref").(providertest.Values)
	subnet := ref["subnets"].([]any)[0].(providertest.Values)["id"].(string)
	groups := ref["security_group_ids"].(providertest.Values)
	tables := providertest.Answer[*ec2.DescribeRouteTablesOutput](t)(c.Client.EC2.DescribeRouteTables(t.Context(), &ec2.DescribeRouteTablesInput{
		Filters: []types.Filter{{Name: sdk.String("association.subnet-id"), Values: []string{subnet}}}}))
	var ids []string
	address := netip.MustParseAddr("10.240.0.20")
	for n := range many {
		name := fmt.Sprintf("worker-%d", n)
		if _, err := awsmachine.Launch(t.Context(), c.Client, awsmachine.Spec{
			Cluster: "demo", Name: name, Role: infraaws.RoleWorker, SubnetID: subnet, SecurityGroupIDs: []string{groups["worker"].(string), groups["ssh"].(string)},
			PrivateIP: address, InstanceType: "t3.small", Image: account.ImageID, User: "admin", AuthorizedKeys: []string{providertest.PublicKey(t)},
			Claim: infraaws.NewClaim(fmt.Sprintf("run-%d", n), "test", time.Now()),
		}, rand.Reader); err != nil {
			t.Fatal(err)
		}
		address = address.Next()
	}
	found := providertest.Answer[*ec2.DescribeInstancesOutput](t)(c.Client.EC2.DescribeInstances(t.Context(), &ec2.DescribeInstancesInput{}))
	for _, r := range found.Reservations {
		for _, i := range r.Instances {
			ids = append(ids, *i.InstanceId)
			providertest.Answer[*ec2.CreateRouteOutput](t)(c.Client.EC2.CreateRoute(t.Context(), &ec2.CreateRouteInput{RouteTableId: tables.RouteTables[0].RouteTableId,
				DestinationCidrBlock: sdk.String(fmt.Sprintf("10.200.%d.0/24", len(ids))), NetworkInterfaceId: i.NetworkInterfaces[0].NetworkInterfaceId}))
		}
	}
	hostKey := providertest.PublicKey(t)
	providertest.Answer[*ec2.CreateTagsOutput](t)(c.Client.EC2.CreateTags(t.Context(), &ec2.CreateTagsInput{Resources: ids,
		Tags: []types.Tag{{Key: sdk.String(infraaws.TagHostKey), Value: &hostKey}}}))
	key, _, _, _, err := ssh.ParseAuthorizedKey([]byte(hostKey))
	if err != nil {
		t.Fatal(err)
	}
	for _, id := range ids {
		m := c.Instance("k8s_machine")
		m.Imports(id + "#" + ssh.FingerprintSHA256(key)) // nothing of these machines runs, so that their consoles are empty
		machines = append(machines, m)
	}
	providertest.RefreshAll(machines) // settles what was imported
	c = c.Process(t)
	network = c.Taken(network)
	for n := range machines {
		machines[n] = c.Taken(machines[n])
	}
	return c, network, machines
}

// TestRefreshCalls: a refresh asks AWS as often for many machines as for few.
func TestRefreshCalls(t *testing.T) {
	t.Parallel()
	var few map[string]int
	for _, many := range []int{6, 50} {
		c, network, machines := refreshedMachines(t, many)
		began := time.Now()
		network.Refresh()
		providertest.RefreshAll(machines)
		often := 1 + int(time.Since(began)/(10*time.Second)) // an answer is for ten seconds
		calls := map[string]int{}
		for _, action := range c.Calls() {
			if action != "ssh" { // imported machines are asked whether they power themselves off
				calls[action]++
			}
		}
		t.Logf("%d machines: %v", many, calls)
		for _, m := range machines {
			if m.State.IsNull() || m.Get("instance_state") != "running" {
				t.Fatalf("%d machines: refreshed as %v", many, m.State)
			}
		}
		if few == nil {
			few = calls
			if min(calls["DescribeInstances"], calls["DescribeVolumes"]) < 1 || max(calls["DescribeInstances"], calls["DescribeVolumes"]) > often {
				t.Errorf("%d machines: %v", many, calls)
			}
			continue
		}
		for action, n := range calls {
			if n > few[action]*often {
				t.Errorf("%d machines: %d %s, wanted %d", many, n, action, few[action])
			}
		}
	}
}

// TestRefreshIsTrue: an answer that a refresh shares among machines is never older than this
// provider's last change, is used at most once for each machine, and does not decide that a machine
// is gone.
func TestRefreshIsTrue(t *testing.T) {
	t.Parallel()
	c, _, machines := refreshedMachines(t, 3)
	providertest.RefreshAll(machines)
	id := func(m *providertest.Instance) string { return m.Get("id").(string) }

	// Somebody else terminates one: its second refresh asks again.
	providertest.Answer[*ec2.TerminateInstancesOutput](t)(c.Client.EC2.TerminateInstances(t.Context(), &ec2.TerminateInstancesInput{InstanceIds: []string{id(machines[0])}}))
	if machines[0].Refresh(); !machines[0].State.IsNull() {
		t.Error("a terminated machine is still there")
	}

	providertest.RefreshAll(machines[1:]) // these have used the last answer
	// Somebody else removes the tags by which a machine is found. That is drift, and the machine is
	// still there.
	providertest.Answer[*ec2.DeleteTagsOutput](t)(c.Client.EC2.DeleteTags(t.Context(), &ec2.DeleteTagsInput{Resources: []string{id(machines[1])},
		Tags: []types.Tag{{Key: sdk.String(infraaws.TagCluster)}}}))
	machines[1].Refresh()
	drift, _ := machines[1].Get("drift").(providertest.Values)
	if machines[1].State.IsNull() || !strings.Contains(fmt.Sprint(drift), infraaws.TagCluster) {
		t.Errorf("without its tags: drift %v", drift)
	}

	// This provider changes one machine. Another machine, which has not used the last answer, gets
	// an answer from after the change.
	provider, err := c.Provider.Sessions[0].AWS(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	providertest.Answer[*ec2.CreateTagsOutput](t)(provider.EC2.CreateTags(t.Context(), &ec2.CreateTagsInput{Resources: []string{id(machines[2])},
		Tags: []types.Tag{{Key: sdk.String("team"), Value: sdk.String("another")}}}))
	machines[2].Refresh()
	if drift, _ := machines[2].Get("drift").(providertest.Values); !strings.Contains(fmt.Sprint(drift), "team") {
		t.Errorf("after a change by this provider: drift %v", drift)
	}
}
