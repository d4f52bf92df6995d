package provider

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	sdk "github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/ec2"
	"github.com/aws/aws-sdk-go-v2/service/ec2/types"

	"github.com/k8s-from-scratch/terraform-provider-k8s/internal/lab/cloud/fault"
)

// profile makes an instance profile with a role of the same name.
func (c cloud) profile(t *testing.T, name string) {
	t.Helper()
	if _, err := c.account.Cloud.Identities().PutRole(name, nil, ""); err != nil {
		t.Fatal(err)
	}
	if _, err := c.account.Cloud.PutInstanceProfile(name, name); err != nil {
		t.Fatal(err)
	}
}

// hasProfile fails the test unless the machine's instance has the profile, none if name is empty.
func (c cloud) hasProfile(t *testing.T, machine *instance, name string) {
	t.Helper()
	got := ""
	if p := c.found(t, machine).IamInstanceProfile; p != nil {
		got = (*p.Arn)[strings.LastIndex(*p.Arn, "/")+1:]
	}
	if got != name {
		t.Errorf("the instance has profile %q, want %q", got, name)
	}
}

// found returns the machine's instance.
func (c cloud) found(t *testing.T, machine *instance) types.Instance {
	t.Helper()
	out := answer[*ec2.DescribeInstancesOutput](t)(c.client.EC2.DescribeInstances(t.Context(), &ec2.DescribeInstancesInput{InstanceIds: []string{machine.get("id").(string)}}))
	return out.Reservations[0].Instances[0]
}

// give gives the machine another profile, as somebody else does it. It takes the present one away
// first.
func (c cloud) give(t *testing.T, machine *instance, name string) {
	t.Helper()
	id := machine.get("id").(string)
	api, filters := c.client.EC2, &ec2.DescribeIamInstanceProfileAssociationsInput{Filters: []types.Filter{{Name: sdk.String("instance-id"), Values: []string{id}}}}
	for range 100 {
		all := answer[*ec2.DescribeIamInstanceProfileAssociationsOutput](t)(api.DescribeIamInstanceProfileAssociations(t.Context(), filters)).IamInstanceProfileAssociations
		if len(all) == 0 {
			break
		}
		if all[0].State == types.IamInstanceProfileAssociationStateAssociated {
			answer[*ec2.DisassociateIamInstanceProfileOutput](t)(api.DisassociateIamInstanceProfile(t.Context(), &ec2.DisassociateIamInstanceProfileInput{AssociationId: all[0].AssociationId}))
		}
		time.Sleep(50 * time.Millisecond)
	}
	if name != "" {
		answer[*ec2.AssociateIamInstanceProfileOutput](t)(api.AssociateIamInstanceProfile(t.Context(), &ec2.AssociateIamInstanceProfileInput{
			InstanceId: &id, IamInstanceProfile: &types.IamInstanceProfileSpecification{Name: &name}}))
	}
}

func (c cloud) stop(t *testing.T, machine *instance) {
	t.Helper()
	id := machine.get("id").(string)
	answer[*ec2.StopInstancesOutput](t)(c.client.EC2.StopInstances(t.Context(), &ec2.StopInstancesInput{InstanceIds: []string{id}}))
	for range 100 {
		if c.found(t, machine).State.Name == types.InstanceStateNameStopped {
			return
		}
		time.Sleep(50 * time.Millisecond)
	}
	t.Fatal("it does not stop")
}

// TestInstanceProfile: a machine has the profile that is configured, from the launch on, and gets
// another one in place. What somebody else does to it is drift.
func TestInstanceProfile(t *testing.T) {
	t.Parallel()
	c := newCloud(t)
	for _, name := range []string{"node", "other", "admin"} {
		c.profile(t, name)
	}
	network, worker := c.instance("k8s_network"), c.instance("k8s_machine")
	network.must(networkConfig())
	config := func(profile any) values { return with(workerConfig(network), values{"instance_profile": profile}) }
	worker.must(config("node"))
	worker.settled(config("node"))
	c.hasProfile(t, worker, "node")
	id := worker.get("id")

	imported := c.instance("k8s_machine")
	imported.imports(id.(string))
	imported.settled(config("node"))
	if ch := imported.plan(config(nil)); imported.empty(ch) || len(ch.replace) > 0 {
		t.Errorf("an imported profile that is not configured: %s", imported.differences(ch))
	}

	apply := func(profile any) {
		t.Helper()
		ch := worker.plan(config(profile))
		if len(ch.replace) > 0 {
			t.Fatalf("would replace the machine because of %v", ch.replace)
		}
		c.fatal(worker.apply(ch))
		worker.settled(config(profile))
		name, _ := profile.(string)
		c.hasProfile(t, worker, name)
		if worker.get("id") != id {
			t.Fatal("it is another machine")
		}
	}
	before := len(c.calls())
	apply("other")
	if calls := c.calls()[before:]; !slices.Contains(calls, "ReplaceIamInstanceProfileAssociation") || slices.Contains(calls, "DisassociateIamInstanceProfile") {
		t.Errorf("a running machine was without a profile meanwhile: %q", calls)
	}
	apply(nil)
	apply("node")

	drifts := func(profile any, want string) {
		t.Helper()
		worker.refresh()
		if ch := worker.plan(config(profile)); !strings.Contains(worker.differences(ch), want) {
			t.Errorf("the plan shows\n%s\nwithout %q", worker.differences(ch), want)
		}
		apply(profile)
	}
	c.give(t, worker, "admin")
	drifts("node", "instance profile: found admin, wanted node")
	c.give(t, worker, "")
	drifts("node", "instance profile: missing, wanted node")
	apply(nil)
	c.give(t, worker, "admin")
	drifts(nil, "instance profile: found admin, wanted none")

	// A stopped machine: EC2 replaces no profile there.
	apply("node")
	c.stop(t, worker)
	worker.refresh()
	apply("other")

	// With ignore_changes the configuration takes the value of the state.
	c.give(t, worker, "admin")
	worker.refresh()
	if got := worker.get("instance_profile"); got != "admin" {
		t.Errorf("the state has %v", got)
	}
	apply("admin")
	c.fatal(worker.apply(worker.plan(nil)))
	c.fatal(network.apply(network.plan(nil)))
	c.account.Empty()
}

// TestUnusableProfile: a profile that cannot be is an error of the plan, one that does not exist an
// error of the apply, both at the argument. A new one is waited for.
func TestUnusableProfile(t *testing.T) {
	t.Parallel()
	c := newCloud(t)
	network := c.instance("k8s_network")
	network.must(networkConfig())
	for text, want := range map[string]string{
		"arn:aws:iam::123456789012:instance-profile/team/node": `Give the name of the instance profile only: "node"`,
		"arn:aws:iam::123456789012:role/node":                  "is the ARN of a role",
		"a node":                                               "cannot be the name of an instance profile",
		strings.Repeat("x", 129):                               "cannot be the name of an instance profile",
	} {
		ch := c.instance("k8s_machine").plan(with(workerConfig(network), values{"instance_profile": text}))
		if got := ch.failure(); !strings.Contains(got, want) || !at(ch, "instance_profile") {
			t.Errorf("%q: %s", text, got)
		}
	}

	c.account.Fault(fault.Fault{Kind: fault.Eventual, Action: "CreateInstanceProfile", Calls: 2})
	c.profile(t, "new")
	c.profile(t, "later")
	worker := c.instance("k8s_machine")
	worker.must(with(workerConfig(network), values{"instance_profile": "new"}))
	c.hasProfile(t, worker, "new")
	worker.must(with(workerConfig(network), values{"instance_profile": "later"}))
	c.hasProfile(t, worker, "later")
}

// TestMissingProfile waits about half a minute for a profile that does not exist.
func TestMissingProfile(t *testing.T) {
	t.Parallel()
	c := newCloud(t)
	network := c.instance("k8s_network")
	network.must(networkConfig())
	worker := c.instance("k8s_machine")
	ch := change{errors: worker.apply(worker.plan(with(workerConfig(network), values{"instance_profile": "nobody", "timeouts": values{"create": "2m"}})))}
	got := strings.Join(strings.Fields(ch.failure()), " ")
	if !strings.Contains(got, "Invalid IAM Instance Profile name") || !strings.Contains(got, "no instance profile of this name") || !at(ch, "instance_profile") {
		t.Errorf("%s", got)
	}
	if n := len(c.account.Cloud.Overview().Instances); n != 0 {
		t.Errorf("%d instances", n)
	}
}

// at reports whether the first error is about an argument.
func at(ch change, argument string) bool {
	return len(ch.errors) > 0 && strings.Contains(fmt.Sprint(ch.errors[0].Attribute), argument)
}
