package provider

import (
	"slices"
	"strings"
	"testing"

	sdk "github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/ec2"
	"github.com/aws/aws-sdk-go-v2/service/ec2/types"

	"github.com/k8s-from-scratch/terraform-provider-k8s/internal/e2e/account"
	"github.com/k8s-from-scratch/terraform-provider-k8s/internal/provider/reference"
)

// placementGroup makes a placement group of somebody else.
func (c cloud) placementGroup(t *testing.T, name string, strategy types.PlacementStrategy) {
	t.Helper()
	answer[*ec2.CreatePlacementGroupOutput](t)(c.client.EC2.CreatePlacementGroup(t.Context(), &ec2.CreatePlacementGroupInput{GroupName: &name, Strategy: strategy}))
}

// isIn fails the test unless the machine runs in the placement group, in none if name is empty.
func (c cloud) isIn(t *testing.T, machine *instance, name string) {
	t.Helper()
	i := c.found(t, machine)
	if got := sdk.ToString(i.Placement.GroupName); got != name || i.State.Name != types.InstanceStateNameRunning {
		t.Errorf("the machine is %s in the group %q, want running in %q", i.State.Name, got, name)
	}
}

// TestPlacementGroup: a machine is launched into the placement group that is configured, and is stopped once
// to get into another one. What somebody else does to it is drift, and an import finds the group.
func TestPlacementGroup(t *testing.T) {
	t.Parallel()
	c := newCloud(t)
	network, worker := c.instance("k8s_network"), c.instance("k8s_machine")
	network.must(networkConfig())
	for _, name := range []string{"one", "two"} {
		c.placementGroup(t, name, types.PlacementStrategySpread)
	}
	config := func(group any) values { return with(workerConfig(network), values{"placement_group": group}) }
	worker.must(config("one"))
	worker.settled(config("one"))
	c.isIn(t, worker, "one")
	id := worker.get("id")

	imported := c.instance("k8s_machine")
	imported.imports(id.(string))
	imported.settled(config("one"))

	apply := func(group any, stops int) {
		t.Helper()
		ch, before := worker.plan(config(group)), len(c.calls())
		if len(ch.replace) > 0 {
			t.Fatalf("would replace the machine because of %v", ch.replace)
		}
		if planned, _ := plain(ch.planned).(values); stops > 0 && planned["public_ip"] != unknown {
			t.Errorf("the public address is planned as %v", planned["public_ip"])
		}
		c.fatal(worker.apply(ch))
		worker.settled(config(group))
		name, _ := group.(string)
		c.isIn(t, worker, name)
		if n := of(c.calls()[before:], "StopInstances"); n != stops || worker.get("id") != id {
			t.Errorf("%v: stopped %d times, want %d", group, n, stops)
		}
	}
	apply("two", 1)
	apply(nil, 1)
	apply("one", 1)

	c.stop(t, worker)
	answer[*ec2.ModifyInstancePlacementOutput](t)(c.client.EC2.ModifyInstancePlacement(t.Context(), &ec2.ModifyInstancePlacementInput{InstanceId: sdk.String(id.(string)), GroupName: sdk.String("two")}))
	worker.refresh()
	if ch := worker.plan(config("one")); !strings.Contains(worker.differences(ch), "placement group: found two, wanted one") {
		t.Errorf("another group is no drift:\n%s", worker.differences(ch))
	}
	apply("one", 0) // it is stopped already

	// A group without room: the machine runs on where it was.
	subnet := network.get("ref").(values)["subnets"].([]any)[0].(values)["id"].(string)
	for range 7 {
		c.launched(t, subnet, "two")
	}
	if got := strings.Join(strings.Fields(worker.carryOut(worker.plan(config("two"))).failure()), " "); !strings.Contains(got, "start it as t3.small in placement group two") || !strings.Contains(got, "InsufficientInstanceCapacity") {
		t.Errorf("a group without room: %q", got)
	}
	worker.refresh()
	c.isIn(t, worker, "one")
	worker.settled(config("one"))

	// A stopped machine changes its group, and stays stopped.
	off := func(group any) values { return with(config(group), values{"power_state": reference.Stopped}) }
	worker.must(off("one"))
	worker.must(off(nil))
	worker.settled(off(nil))
	if i := c.found(t, worker); sdk.ToString(i.Placement.GroupName) != "" || i.State.Name != types.InstanceStateNameStopped {
		t.Errorf("the stopped machine is %s in the group %q", i.State.Name, sdk.ToString(i.Placement.GroupName))
	}

	for _, name := range []string{"", " one", "gr\u00fcn", strings.Repeat("x", 256)} {
		if ch := c.instance("k8s_machine").plan(config(name)); ch.failure() == "" || !at(ch, "placement_group") {
			t.Errorf("%q: %q", name, ch.failure())
		}
	}
	if said := worker.dismiss().failure(); said != "" {
		t.Error(said)
	}
}

// TestMissingPlacementGroup waits about half a minute for a group that does not exist. A machine is not stopped
// for it.
func TestMissingPlacementGroup(t *testing.T) {
	t.Parallel()
	c := newCloud(t)
	network := c.instance("k8s_network")
	network.must(networkConfig())
	config := with(workerConfig(network), values{"placement_group": "nowhere"})
	worker := c.instance("k8s_machine")
	if ch := worker.carryOut(worker.plan(config)); !strings.Contains(ch.failure(), "InvalidPlacementGroup.Unknown") || !at(ch, "placement_group") {
		t.Errorf("launched: %q", ch.failure())
	}
	worker = c.instance("k8s_machine")
	worker.must(workerConfig(network))
	if ch := worker.carryOut(worker.plan(config)); !strings.Contains(ch.failure(), "InvalidPlacementGroup.Unknown") || !at(ch, "placement_group") {
		t.Errorf("moved: %q", ch.failure())
	}
	c.isIn(t, worker, "")
	if slices.Contains(c.calls(), "StopInstances") {
		t.Error("the machine was stopped")
	}
}

// launched launches an instance of somebody else into a placement group.
func (c cloud) launched(t *testing.T, subnet, group string) {
	t.Helper()
	out := answer[*ec2.RunInstancesOutput](t)(c.client.EC2.RunInstances(t.Context(), &ec2.RunInstancesInput{
		ImageId: sdk.String(account.ImageID), InstanceType: types.InstanceTypeT3Nano, MinCount: sdk.Int32(1), MaxCount: sdk.Int32(1),
		SubnetId: &subnet, Placement: &types.Placement{GroupName: &group},
	}))
	if len(out.Instances) != 1 {
		t.Fatalf("launched %v", out.Instances)
	}
}
