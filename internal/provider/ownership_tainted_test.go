package provider_test

import (
	"testing"

	"github.com/k8s-from-scratch/terraform-provider-k8s/internal/provider/providertest"
)

// TestTainted replaces tainted objects as Terraform does: the deletion gets no private state. It
// deletes what is this state's, leaves an adopted VPC, and does not touch what another state has
// taken over.
func TestTainted(t *testing.T) {
	t.Parallel()
	c := providertest.NewCloud(t)
	s := providertest.NewSite(t, c)
	before := c.Account.Cloud.Overview().Total
	mine := c.NewCluster()
	mine.Make()
	adopting := s.Network(s.A)
	adopting["cluster"] = "other"
	adopted := c.Instance("k8s_network")
	adopted.Must(adopting)
	c = c.Ends(t)

	// The provider died during an update, and the CLI stored the object without its private state.
	adopted = c.Taken(adopted)
	adopted.Private = nil
	adopted.Converged(adopting)
	adopted.Private = nil
	adopting["tags"] = providertest.Values{"room": "12"}
	adopted.Must(adopting)
	adopted.Converged(adopting)

	adopted.Taint()
	adopted.Must(adopting)
	adopted.Converged(adopting)
	for _, object := range []*providertest.Instance{mine.Keys, mine.Worker} {
		i, config := c.Taken(object), mine.Config(object, mine.Network)
		i.Taint()
		i.Must(config)
		i.Converged(config)

		other, adopt := c.Process(t).Instance(i.TypeName), mine.Config(object, mine.Network)
		adopt["adopt"] = true
		other.Must(adopt)
		i.Private = nil
		if said := i.Dismiss(); len(said.Errors) > 0 || len(said.Warnings) != 1 {
			t.Errorf("%s was taken over: %v %v", i.TypeName, said.Errors, said.Warnings)
		}
		c.Fatal(other.Dismiss().Errors)
	}
	network := c.Taken(mine.Network)
	network.Taint()
	network.Must(providertest.NetworkConfig())
	network.Converged(providertest.NetworkConfig())
	c.Fatal(network.Dismiss().Errors)
	c.Fatal(adopted.Dismiss().Errors)
	if after := c.Account.Cloud.Overview().Total; after != before {
		t.Errorf("%d things were %d", after, before)
	}
}
