package machines_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/k8s-from-scratch/terraform-provider-k8s/internal/lab/cloud/fault"
	"github.com/k8s-from-scratch/terraform-provider-k8s/internal/provider/providertest"
)

// TestInstanceProfile: a machine has the profile that is configured, from the launch on, and gets
// another one in place. What somebody else does to it is drift.
func TestInstanceProfile(t *testing.T) {
	t.Parallel()
	c := providertest.NewCloud(t)
	for _, name := range []string{"node", "other", "admin"} {
		c.Profile(t, name)
	}
	network, worker := c.Instance("k8s_network"), c.Instance("k8s_machine")
	network.Must(providertest.NetworkConfig())
	config := func(profile any) providertest.Values {
		return providertest.With(providertest.WorkerConfig(network), providertest.Values{"instance_profile": profile})
	}
	worker.Must(config("node"))
	worker.Converged(config("node"))
	c.HasProfile(t, worker, "node")
	id := worker.Get("id")

	imported := c.Instance("k8s_machine")
	imported.Imports(id.(string))
	imported.Converged(config("node"))
	if ch := imported.Plan(config(nil)); imported.Empty(ch) || len(ch.Replace) > 0 {
		t.Errorf("an imported profile that is not configured: %s", imported.Differences(ch))
	}

	apply := func(profile any) {
		t.Helper()
		ch := worker.Plan(config(profile))
		if len(ch.Replace) > 0 {
			t.Fatalf("would replace the machine because of %v", ch.Replace)
		}
		c.Fatal(worker.Apply(ch))
		worker.Converged(config(profile))
		name, _ := profile.(string)
		c.HasProfile(t, worker, name)
		if worker.Get("id") != id {
			t.Fatal("the machine was replaced")
		}
	}
	before := len(c.Calls())
	apply("other")
	if calls := c.Calls()[before:]; !slices.Contains(calls, "ReplaceIamInstanceProfileAssociation") || slices.Contains(calls, "DisassociateIamInstanceProfile") {
		t.Errorf("a running machine was without a profile meanwhile: %q", calls)
	}
	apply(nil)
	apply("node")

	drifts := func(profile any, want string) {
		t.Helper()
		worker.Refresh()
		if ch := worker.Plan(config(profile)); !strings.Contains(worker.Differences(ch), want) {
			t.Errorf("the plan shows\n%s\nwithout %q", worker.Differences(ch), want)
		}
		apply(profile)
	}
	c.Give(t, worker, "admin")
	drifts("node", "instance profile: found admin, wanted node")
	c.Give(t, worker, "")
	drifts("node", "instance profile: missing, wanted node")
	apply(nil)
	c.Give(t, worker, "admin")
	drifts(nil, "instance profile: found admin, wanted none")

	// A stopped machine: EC2 replaces no profile there.
	apply("node")
	c.Stop(t, worker)
	worker.Refresh()
	apply("other")

	// With ignore_changes the configuration takes the value of the state.
	c.Give(t, worker, "admin")
	worker.Refresh()
	if got := worker.Get("instance_profile"); got != "admin" {
		t.Errorf("the state has %v", got)
	}
	apply("admin")
	c.Fatal(worker.Apply(worker.Plan(nil)))
	c.Fatal(network.Apply(network.Plan(nil)))
	c.Account.Empty()
}

// TestUnusableProfile: an invalid name is an error of the plan, and a missing profile an error of
// the apply, both on the argument. The apply waits for a new profile.
func TestUnusableProfile(t *testing.T) {
	t.Parallel()
	c := providertest.NewCloud(t)
	network := c.Instance("k8s_network")
	network.Must(providertest.NetworkConfig())
	for text, want := range map[string]string{
		"arn:aws:iam::123456789012:instance-profile/team/node": `Give the name of the instance profile only: "node"`,
		"arn:aws:iam::123456789012:role/node":                  "is the ARN of a role",
		"a node":                                               "cannot be the name of an instance profile",
		strings.Repeat("x", 129):                               "cannot be the name of an instance profile",
	} {
		ch := c.Instance("k8s_machine").Plan(providertest.With(providertest.WorkerConfig(network), providertest.Values{"instance_profile": text}))
		if got := ch.Failure(); !strings.Contains(got, want) || !at(ch, "instance_profile") {
			t.Errorf("%q: %s", text, got)
		}
	}

	c.Account.Fault(fault.Fault{Kind: fault.Eventual, Action: "CreateInstanceProfile", Calls: 2})
	c.Profile(t, "new")
	c.Profile(t, "later")
	worker := c.Instance("k8s_machine")
	worker.Must(providertest.With(providertest.WorkerConfig(network), providertest.Values{"instance_profile": "new"}))
	c.HasProfile(t, worker, "new")
	worker.Must(providertest.With(providertest.WorkerConfig(network), providertest.Values{"instance_profile": "later"}))
	c.HasProfile(t, worker, "later")
}

// TestMissingProfile waits about half a minute for a profile that does not exist.
func TestMissingProfile(t *testing.T) {
	t.Parallel()
	c := providertest.NewCloud(t)
	network := c.Instance("k8s_network")
	network.Must(providertest.NetworkConfig())
	worker := c.Instance("k8s_machine")
	ch := providertest.Change{Errors: worker.Apply(worker.Plan(providertest.With(providertest.WorkerConfig(network), providertest.Values{"instance_profile": "nobody", "timeouts": providertest.Values{"create": "2m"}})))}
	got := strings.Join(strings.Fields(ch.Failure()), " ")
	if !strings.Contains(got, "Invalid IAM Instance Profile name") || !strings.Contains(got, "no instance profile of this name") || !at(ch, "instance_profile") {
		t.Errorf("%s", got)
	}
	if n := len(c.Account.Cloud.Overview().Instances); n != 0 {
		t.Errorf("%d instances", n)
	}
}

// at reports whether the first error is about an argument.
func at(ch providertest.Change, argument string) bool {
	return len(ch.Errors) > 0 && strings.Contains(fmt.Sprint(ch.Errors[0].Attribute), argument)
}
