package provider

import "testing"

// TestTainted replaces tainted objects as Terraform does: the deletion gets no private state. It
// deletes what is this state's, leaves an adopted VPC, and does not touch what another state has
// taken over.
func TestTainted(t *testing.T) {
	t.Parallel()
	c := newCloud(t)
	s := newSite(t, c)
	before := c.account.Cloud.Overview().Total
	mine := c.newCluster()
	mine.make()
	adopting := s.network(s.a)
	adopting["cluster"] = "other"
	adopted := c.instance("k8s_network")
	adopted.must(adopting)
	c = c.ends(t)

	// The provider died during an update, and the CLI stored the object without its private state.
	adopted = c.taken(adopted)
	adopted.private = nil
	adopted.settled(adopting)
	adopted.private = nil
	adopting["tags"] = values{"room": "12"}
	adopted.must(adopting)
	adopted.settled(adopting)

	adopted.taint()
	adopted.must(adopting)
	adopted.settled(adopting)
	for _, object := range []*instance{mine.keys, mine.worker} {
		i, config := c.taken(object), mine.config(object, mine.network)
		i.taint()
		i.must(config)
		i.settled(config)

		other, adopt := c.process(t).instance(i.typeName), mine.config(object, mine.network)
		adopt["adopt"] = true
		other.must(adopt)
		i.private = nil
		if said := i.dismiss(); len(said.errors) > 0 || len(said.warnings) != 1 {
			t.Errorf("%s was taken over: %v %v", i.typeName, said.errors, said.warnings)
		}
		c.fatal(other.dismiss().errors)
	}
	network := c.taken(mine.network)
	network.taint()
	network.must(networkConfig())
	network.settled(networkConfig())
	c.fatal(network.dismiss().errors)
	c.fatal(adopted.dismiss().errors)
	if after := c.account.Cloud.Overview().Total; after != before {
		t.Errorf("%d things were %d", after, before)
	}
}

// taint deletes the object as Terraform does before it replaces a tainted one.
func (i *instance) taint() {
	i.core.t.Helper()
	i.private = nil
	if said := i.dismiss(); len(said.errors)+len(said.warnings) > 0 || !i.state.IsNull() {
		i.core.t.Errorf("deleting the tainted %s: %v %v", i.typeName, said.errors, said.warnings)
	}
}
