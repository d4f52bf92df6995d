package provider_test

import (
	"strings"
	"testing"

	sdk "github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/ec2"
	"github.com/aws/aws-sdk-go-v2/service/ec2/types"

	infraaws "github.com/k8s-from-scratch/terraform-provider-k8s/infra/aws"
	"github.com/k8s-from-scratch/terraform-provider-k8s/internal/provider/providertest"
)

// TestColleague uses one cluster name in two states, one after the other. The second neither takes
// over the first one's cluster nor destroys it, and is told who has it and what to do.
func TestColleague(t *testing.T) {
	t.Parallel()
	c := providertest.NewCloud(t)
	mine := c.NewCluster()
	mine.Make()
	c = c.Ends(t)

	other := c.Process(t)
	theirs := other.NewCluster()
	before := c.Account.Cloud.Overview()
	for _, i := range theirs.All() {
		providertest.Mention(t, i.Attempt(theirs.Config(i, mine.Network)), "belongs to another state", "claimed by arn:aws:iam::", " since 20", "`adopt = true`", "import", "moved", "create_before_destroy")
		if !i.State.IsNull() {
			t.Errorf("%s is in the second state", i.TypeName)
		}
	}
	if after := c.Account.Cloud.Overview(); after.Total != before.Total {
		t.Errorf("the refusal left something: %+v", after)
	}

	// The first state goes on as if nothing had happened, also on another computer.
	c = c.Ends(t)
	clone := c.TakenCluster(mine)
	for _, i := range clone.All() {
		i.Converged(clone.Config(i, clone.Network))
	}
	for _, i := range []*providertest.Instance{clone.Worker, clone.Network, clone.Keys} {
		if said := i.Dismiss(); len(said.Errors)+len(said.Warnings) > 0 {
			t.Errorf("%s: %v %v", i.TypeName, said.Errors, said.Warnings)
		}
	}
	c.Account.Empty()
}

// TestAdopt takes a cluster over with adopt. Its first owner is told so, neither changes nor
// deletes anything any more, and leaves it alone when it destroys.
func TestAdopt(t *testing.T) {
	t.Parallel()
	c := providertest.NewCloud(t)
	c.More = providertest.Values{"patience": 20} // for settling
	c = c.Process(t)
	mine := c.NewCluster()
	mine.Make()
	c = c.Ends(t)

	theirs := c.NewCluster()
	with := func(i *providertest.Instance, adopt any) providertest.Values {
		config := theirs.Config(i, mine.Network)
		config["adopt"] = adopt
		return config
	}
	for _, i := range theirs.All() {
		i.Must(with(i, true))
	}
	// Settled at once: a third state is refused, even if the process is killed now.
	c = c.Process(t)
	third := c.NewCluster()
	for _, i := range third.All() {
		providertest.Mention(t, i.Attempt(third.Config(i, mine.Network)), "belongs to another state")
	}
	theirs = c.TakenCluster(theirs)
	for _, i := range theirs.All() {
		i.Refresh()
		if ch := i.Plan(with(i, true)); len(ch.Warnings) != 1 || ch.Warnings[0].Summary != "adopt is still set" {
			t.Errorf("%s: adopt was left in: %v", i.TypeName, ch.Warnings)
		}
		i.Must(with(i, nil))
		i.Converged(with(i, nil))
	}

	first := c.TakenCluster(mine)
	for _, i := range first.All() {
		providertest.Mention(t, i.Refreshed(), "belongs to another state", "terraform state rm", "-refresh=false")
		config := first.Config(i, mine.Network)
		config["tags"] = providertest.Values{"mine": "yes"}
		providertest.Mention(t, i.Attempt(config), "belongs to another state", "terraform state rm")
		said := c.Taken(i).Dismiss()
		if len(said.Errors) > 0 || len(said.Warnings) != 1 || !strings.Contains(said.Warnings[0].Summary, "was kept") {
			t.Errorf("deleting %s: %v %v", i.TypeName, said.Errors, said.Warnings)
		}
	}
	for _, i := range theirs.All() {
		i.Converged(with(i, nil))
	}

	// The first owner takes it back, and then the second one is told so.
	for _, i := range first.All() {
		config := first.Config(i, mine.Network)
		config["adopt"] = true
		i.Must(config)
		i.Converged(config)
	}
	for _, i := range theirs.All() {
		providertest.Mention(t, i.Refreshed(), "belongs to another state")
	}
	for _, i := range []*providertest.Instance{first.Worker, first.Network, first.Keys} {
		if said := i.Dismiss(); len(said.Errors)+len(said.Warnings) > 0 {
			t.Errorf("%s: %v %v", i.TypeName, said.Errors, said.Warnings)
		}
	}
	c.Account.Empty()
}

// TestLeftByLoser deletes a network whose VPC is ours and in which another create has left a group.
// A group that a state holds stays, and nothing is deleted.
func TestLeftByLoser(t *testing.T) {
	t.Parallel()
	c := providertest.NewCloud(t)
	network := c.Instance("k8s_network")
	network.Must(providertest.NetworkConfig())
	group, _ := network.Get("security_group_ids").(providertest.Values)["lb"].(string)
	tag := func(key, value string) {
		providertest.Answer[*ec2.CreateTagsOutput](t)(c.Client.EC2.CreateTags(t.Context(), &ec2.CreateTagsInput{
			Resources: []string{group}, Tags: []types.Tag{{Key: sdk.String(key), Value: sdk.String(value)}}}))
	}
	tag(infraaws.TagClaim, "other-1")
	tag(infraaws.TagSettled, "other 2026-01-01T00:00:00Z")
	if said := network.Dismiss(); len(said.Errors) == 0 || network.State.IsNull() {
		t.Errorf("the group of another state was deleted: %v", said.Warnings)
	}
	tag(infraaws.TagSettled, "")
	c.Fatal(network.Dismiss().Errors)
	c.Account.Empty()
}
