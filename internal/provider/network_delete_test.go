package provider

import (
	"strings"
	"testing"
)

// TestNetworkInUse: a network that something still uses ends the deletion, when its time is over,
// with what EC2 said and with what uses it.
func TestNetworkInUse(t *testing.T) {
	t.Parallel()
	c := newCloud(t)
	network, worker := c.instance("k8s_network"), c.instance("k8s_machine")
	config := with(networkConfig(), values{"timeouts": values{"delete": "2s"}})
	network.must(config)
	worker.must(workerConfig(network))
	got := network.dismiss().failure()
	for _, want := range []string{"DependencyViolation", "deadline exceeded", "network interfaces still in " + network.get("vpc_id").(string), "of instance " + worker.get("id").(string), "does not manage still uses it"} {
		if !strings.Contains(got, want) {
			t.Errorf("the error does not say %q: %s", want, got)
		}
	}
}
