package provider

import (
	"strings"
	"testing"

	sdk "github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/ec2"
	"github.com/aws/aws-sdk-go-v2/service/ec2/types"

	infraaws "github.com/k8s-from-scratch/terraform-provider-k8s/infra/aws"
)

// ends is the graceful end of the provider's process, and returns the next one.
func (c cloud) ends(t *testing.T) cloud {
	t.Helper()
	c.provider.Settle(t.Context())
	return c.process(t)
}

// taken returns a resource with its state in this process: another run with the same state, on the
// same computer or on another.
func (c cloud) taken(i *instance) *instance {
	next := *i
	next.core = c.core
	return &next
}

// attempt applies a configuration and returns the errors.
func (i *instance) attempt(config values) string {
	i.core.t.Helper()
	ch := i.plan(config)
	if len(ch.errors) > 0 {
		return ch.failure()
	}
	return change{errors: i.apply(ch)}.failure()
}

// refreshed refreshes and returns the errors.
func (i *instance) refreshed() string {
	i.core.t.Helper()
	return i.tryLook().failure()
}

func mention(t *testing.T, got string, words ...string) {
	t.Helper()
	for _, w := range words {
		if !strings.Contains(got, w) {
			t.Errorf("%q is not mentioned in: %s", w, got)
		}
	}
}

// cluster is a state with one of every kind that owns something in AWS, except k8s_lb, which needs
// machines that answer; its address is tested in infra.
type ownedCluster struct{ network, keys, worker *instance }

func (o ownedCluster) all() []*instance { return []*instance{o.network, o.keys, o.worker} }

func (c cloud) newCluster() ownedCluster {
	return ownedCluster{c.instance("k8s_network"), c.instance("k8s_pki"), c.instance("k8s_machine")}
}

// config returns the configuration of one of the resources.
func (o ownedCluster) config(i *instance, network *instance) values {
	switch i {
	case o.network:
		return networkConfig()
	case o.keys:
		return values{"cluster": "demo"}
	}
	return workerConfig(network)
}

func (o ownedCluster) make() {
	for _, i := range o.all() {
		i.must(o.config(i, o.network))
	}
}

func (c cloud) takenCluster(o ownedCluster) ownedCluster {
	return ownedCluster{c.taken(o.network), c.taken(o.keys), c.taken(o.worker)}
}

// TestColleague is two states with one cluster name, one after the other. The second neither takes
// over the first one's cluster nor destroys it, and is told who has it and what to do.
func TestColleague(t *testing.T) {
	t.Parallel()
	c := newCloud(t)
	mine := c.newCluster()
	mine.make()
	c = c.ends(t)

	other := c.process(t)
	theirs := other.newCluster()
	before := c.account.Cloud.Overview()
	for _, i := range theirs.all() {
		mention(t, i.attempt(theirs.config(i, mine.network)), "is another's", "claimed by arn:aws:iam::", " since 20", "`adopt = true`", "import", "moved", "create_before_destroy")
		if !i.state.IsNull() {
			t.Errorf("%s is in the second state", i.typeName)
		}
	}
	if after := c.account.Cloud.Overview(); after.Total != before.Total {
		t.Errorf("the refusal left something: %+v", after)
	}

	// The first state goes on as if nothing had happened, also on another computer.
	c = c.ends(t)
	clone := c.takenCluster(mine)
	for _, i := range clone.all() {
		i.settled(clone.config(i, clone.network))
	}
	for _, i := range []*instance{clone.worker, clone.network, clone.keys} {
		if said := i.dismiss(); len(said.errors)+len(said.warnings) > 0 {
			t.Errorf("%s: %v %v", i.typeName, said.errors, said.warnings)
		}
	}
	c.account.Empty()
}

// TestAdopt takes a cluster over with adopt. Its first owner is told so, neither changes nor
// deletes anything any more, and leaves it alone when it destroys.
func TestAdopt(t *testing.T) {
	t.Parallel()
	c := newCloud(t)
	mine := c.newCluster()
	mine.make()
	c = c.ends(t)

	theirs := c.newCluster()
	with := func(i *instance, adopt any) values {
		config := theirs.config(i, mine.network)
		config["adopt"] = adopt
		return config
	}
	for _, i := range theirs.all() {
		i.must(with(i, true))
	}
	// Settled at once: a third state is refused, even if the process is killed now.
	c = c.process(t)
	third := c.newCluster()
	for _, i := range third.all() {
		mention(t, i.attempt(third.config(i, mine.network)), "is another's")
	}
	theirs = c.takenCluster(theirs)
	for _, i := range theirs.all() {
		i.refresh()
		if ch := i.plan(with(i, true)); len(ch.warnings) != 1 || ch.warnings[0].Summary != "adopt is still set" {
			t.Errorf("%s: adopt was left in: %v", i.typeName, ch.warnings)
		}
		i.must(with(i, nil))
		i.settled(with(i, nil))
	}

	first := c.takenCluster(mine)
	for _, i := range first.all() {
		mention(t, i.refreshed(), "is another's", "terraform state rm", "-refresh=false")
		config := first.config(i, mine.network)
		config["tags"] = values{"mine": "yes"}
		mention(t, i.attempt(config), "is another's", "terraform state rm")
		said := c.taken(i).dismiss()
		if len(said.errors) > 0 || len(said.warnings) != 1 || !strings.Contains(said.warnings[0].Summary, "was kept") {
			t.Errorf("deleting %s: %v %v", i.typeName, said.errors, said.warnings)
		}
	}
	for _, i := range theirs.all() {
		i.settled(with(i, nil))
	}

	// The first owner takes it back, and then the second one is told so.
	for _, i := range first.all() {
		config := first.config(i, mine.network)
		config["adopt"] = true
		i.must(config)
		i.settled(config)
	}
	for _, i := range theirs.all() {
		mention(t, i.refreshed(), "is another's")
	}
	for _, i := range []*instance{first.worker, first.network, first.keys} {
		if said := i.dismiss(); len(said.errors)+len(said.warnings) > 0 {
			t.Errorf("%s: %v %v", i.typeName, said.errors, said.warnings)
		}
	}
	c.account.Empty()
}

// TestLeftByLoser deletes a network whose VPC is ours and in which another create has left a group.
// One that a state holds stays, and nothing is deleted.
func TestLeftByLoser(t *testing.T) {
	t.Parallel()
	c := newCloud(t)
	network := c.instance("k8s_network")
	network.must(networkConfig())
	group, _ := network.get("security_group_ids").(values)["lb"].(string)
	tag := func(key, value string) {
		answer[*ec2.CreateTagsOutput](t)(c.client.EC2.CreateTags(t.Context(), &ec2.CreateTagsInput{
			Resources: []string{group}, Tags: []types.Tag{{Key: sdk.String(key), Value: sdk.String(value)}}}))
	}
	tag(infraaws.TagClaim, "other-1")
	tag(infraaws.TagSettled, "other 2026-01-01T00:00:00Z")
	if said := network.dismiss(); len(said.errors) == 0 || network.state.IsNull() {
		t.Errorf("the group of another state was deleted: %v", said.warnings)
	}
	tag(infraaws.TagSettled, "")
	c.fatal(network.dismiss().errors)
	c.account.Empty()
}
