package provider

import (
	"slices"
	"strings"
	"testing"

	sdk "github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/ec2"
)

// group makes a security group of somebody else in a network's VPC.
func (c cloud) group(t *testing.T, network *instance, name string) string {
	t.Helper()
	out := answer[*ec2.CreateSecurityGroupOutput](t)(c.client.EC2.CreateSecurityGroup(t.Context(), &ec2.CreateSecurityGroupInput{
		GroupName: &name, Description: &name, VpcId: sdk.String(network.get("vpc_id").(string)),
	}))
	return *out.GroupId
}

// hasGroups fails the test unless the machine has exactly these groups beside that of its role.
func (c cloud) hasGroups(t *testing.T, machine *instance, own string, further ...string) {
	t.Helper()
	var got []string
	for _, g := range c.found(t, machine).SecurityGroups {
		got = append(got, *g.GroupId)
	}
	want := append([]string{own}, further...)
	slices.Sort(got)
	slices.Sort(want)
	if !slices.Equal(got, want) {
		t.Errorf("the machine has the groups %q, want %q", got, want)
	}
}

// TestSecurityGroups: a machine has the further groups that are configured, from the launch on, and gets
// others in place. What somebody else does to them is drift, and an import finds them.
func TestSecurityGroups(t *testing.T) {
	t.Parallel()
	c := newCloud(t)
	network, worker := c.instance("k8s_network"), c.instance("k8s_machine")
	network.must(networkConfig())
	own := network.get("security_group_ids").(map[string]any)["worker"].(string)
	storage, monitoring, foreign := c.group(t, network, "storage"), c.group(t, network, "monitoring"), c.group(t, network, "foreign")
	config := func(groups ...any) values {
		return with(workerConfig(network), values{"security_group_ids": groups})
	}
	worker.must(config(storage))
	worker.settled(config(storage))
	c.hasGroups(t, worker, own, storage)
	id := worker.get("id")

	imported := c.instance("k8s_machine")
	imported.imports(id.(string))
	imported.settled(config(storage))

	apply := func(config values, further ...string) {
		t.Helper()
		ch := worker.plan(config)
		if len(ch.replace) > 0 {
			t.Fatalf("would replace the machine because of %v", ch.replace)
		}
		c.fatal(worker.apply(ch))
		worker.settled(config)
		c.hasGroups(t, worker, own, further...)
		if worker.get("id") != id {
			t.Fatal("it is another machine")
		}
	}
	apply(config(monitoring, storage), storage, monitoring)
	apply(workerConfig(network))
	apply(config(storage), storage)

	answer[*ec2.ModifyNetworkInterfaceAttributeOutput](t)(c.client.EC2.ModifyNetworkInterfaceAttribute(t.Context(), &ec2.ModifyNetworkInterfaceAttributeInput{
		NetworkInterfaceId: c.found(t, worker).NetworkInterfaces[0].NetworkInterfaceId, Groups: []string{own, foreign},
	}))
	worker.refresh()
	if ch := worker.plan(config(storage)); !strings.Contains(worker.differences(ch), "security groups: found ") {
		t.Errorf("foreign groups are no drift:\n%s", worker.differences(ch))
	}
	apply(config(storage), storage)

	// One that does not exist is an error, and nothing is lost.
	if said := worker.carryOut(worker.plan(config(storage, "sg-0123456789abcdef0"))).failure(); !strings.Contains(said, "sg-0123456789abcdef0") {
		t.Errorf("a group that does not exist: %q", said)
	}
	c.hasGroups(t, worker, own, storage)
	worker.refresh()
	apply(config(storage), storage)

	for _, groups := range [][]any{{}, {"web"}, {"sg-xyz"}} {
		if ch := c.instance("k8s_machine").plan(config(groups...)); ch.failure() == "" || !at(ch, "security_group_ids") {
			t.Errorf("%v: %q", groups, ch.failure())
		}
	}
	c.fatal(worker.apply(worker.plan(nil)))
	for _, id := range []string{storage, monitoring, foreign} {
		answer[*ec2.DeleteSecurityGroupOutput](t)(c.client.EC2.DeleteSecurityGroup(t.Context(), &ec2.DeleteSecurityGroupInput{GroupId: &id}))
	}
	c.fatal(network.apply(network.plan(nil)))
	c.account.Empty()
}
