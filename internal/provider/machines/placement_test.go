package machines_test

import (
	"slices"
	"strings"
	"testing"

	sdk "github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/ec2"
	"github.com/aws/aws-sdk-go-v2/service/ec2/types"

	"github.com/k8s-from-scratch/terraform-provider-k8s/internal/provider/providertest"
	"github.com/k8s-from-scratch/terraform-provider-k8s/internal/provider/reference"
)

// TestPlacementGroup: a machine is launched into the placement group that is configured, and is stopped once
// to get into another one. What somebody else does to it is drift, and an import finds the group.
func TestPlacementGroup(t *testing.T) {
	t.Parallel()
	c := providertest.NewCloud(t)
	network, worker := c.Instance("k8s_network"), c.Instance("k8s_machine")
	network.Must(providertest.NetworkConfig())
	for _, name := range []string{"one", "two"} {
		c.PlacementGroup(t, name, types.PlacementStrategySpread)
	}
	config := func(group any) providertest.Values {
		return providertest.With(providertest.WorkerConfig(network), providertest.Values{"placement_group": group})
	}
	worker.Must(config("one"))
	worker.Converged(config("one"))
	c.IsIn(t, worker, "one")
	id := worker.Get("id")

	imported := c.Instance("k8s_machine")
	imported.Imports(id.(string))
	imported.Converged(config("one"))

	apply := func(group any, stops int) {
		t.Helper()
		ch, before := worker.Plan(config(group)), len(c.Calls())
		if len(ch.Replace) > 0 {
			t.Fatalf("would replace the machine because of %v", ch.Replace)
		}
		if planned, _ := providertest.Plain(ch.Planned).(providertest.Values); stops > 0 && planned["public_ip"] != providertest.Unknown {
			t.Errorf("the public address is planned as %v", planned["public_ip"])
		}
		c.Fatal(worker.Apply(ch))
		worker.Converged(config(group))
		name, _ := group.(string)
		c.IsIn(t, worker, name)
		if n := of(c.Calls()[before:], "StopInstances"); n != stops || worker.Get("id") != id {
			t.Errorf("%v: stopped %d times, want %d", group, n, stops)
		}
	}
	apply("two", 1)
	apply(nil, 1)
	apply("one", 1)

	c.Stop(t, worker)
	providertest.Answer[*ec2.ModifyInstancePlacementOutput](t)(c.Client.EC2.ModifyInstancePlacement(t.Context(), &ec2.ModifyInstancePlacementInput{InstanceId: sdk.String(id.(string)), GroupName: sdk.String("two")}))
	worker.Refresh()
	if ch := worker.Plan(config("one")); !strings.Contains(worker.Differences(ch), "placement group: found two, wanted one") {
		t.Errorf("another group is no drift:\n%s", worker.Differences(ch))
	}
	apply("one", 0) // it is stopped already

	// A group without room: the machine keeps running where it was.
	subnet := network.Get("ref").(providertest.Values)["subnets"].([]any)[0].(providertest.Values)["id"].(string)
	for range 7 {
		c.Launched(t, subnet, "two")
	}
	if got := strings.Join(strings.Fields(worker.CarryOut(worker.Plan(config("two"))).Failure()), " "); !strings.Contains(got, "start it as t3.medium in placement group two") || !strings.Contains(got, "InsufficientInstanceCapacity") {
		t.Errorf("a group without room: %q", got)
	}
	worker.Refresh()
	c.IsIn(t, worker, "one")
	worker.Converged(config("one"))

	// A stopped machine changes its group, and stays stopped.
	off := func(group any) providertest.Values {
		return providertest.With(config(group), providertest.Values{"power_state": reference.Stopped})
	}
	worker.Must(off("one"))
	worker.Must(off(nil))
	worker.Converged(off(nil))
	if i := c.Found(t, worker); sdk.ToString(i.Placement.GroupName) != "" || i.State.Name != types.InstanceStateNameStopped {
		t.Errorf("the stopped machine is %s in the group %q", i.State.Name, sdk.ToString(i.Placement.GroupName))
	}

	for _, name := range []string{"", " one", "gr\u00fcn", strings.Repeat("x", 256)} {
		if ch := c.Instance("k8s_machine").Plan(config(name)); ch.Failure() == "" || !at(ch, "placement_group") {
			t.Errorf("%q: %q", name, ch.Failure())
		}
	}
	if said := worker.Dismiss().Failure(); said != "" {
		t.Error(said)
	}
}

// TestMissingPlacementGroup waits about half a minute for a group that does not exist. A machine is not stopped
// for it.
func TestMissingPlacementGroup(t *testing.T) {
	t.Parallel()
	c := providertest.NewCloud(t)
	network := c.Instance("k8s_network")
	network.Must(providertest.NetworkConfig())
	config := providertest.With(providertest.WorkerConfig(network), providertest.Values{"placement_group": "nowhere"})
	worker := c.Instance("k8s_machine")
	if ch := worker.CarryOut(worker.Plan(config)); !strings.Contains(ch.Failure(), "InvalidPlacementGroup.Unknown") || !at(ch, "placement_group") {
		t.Errorf("launched: %q", ch.Failure())
	}
	worker = c.Instance("k8s_machine")
	worker.Must(providertest.WorkerConfig(network))
	if ch := worker.CarryOut(worker.Plan(config)); !strings.Contains(ch.Failure(), "InvalidPlacementGroup.Unknown") || !at(ch, "placement_group") {
		t.Errorf("moved: %q", ch.Failure())
	}
	c.IsIn(t, worker, "")
	if slices.Contains(c.Calls(), "StopInstances") {
		t.Error("the machine was stopped")
	}
}
