package networks_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/k8s-from-scratch/terraform-provider-k8s/internal/provider/providertest"
)

// TestNetworkInUse: when its time is over, the deletion of a network in use fails. The error has
// what EC2 said, and what uses the network.
func TestNetworkInUse(t *testing.T) {
	t.Parallel()
	var network, worker *providertest.Instance
	var got string
	// A slow computer does not get as far as EC2's answer in a short time.
	for seconds := 4; !strings.Contains(got, "DependencyViolation") && seconds < 200; seconds *= 2 {
		c := providertest.NewCloud(t)
		network, worker = c.Instance("k8s_network"), c.Instance("k8s_machine")
		network.Must(providertest.With(providertest.NetworkConfig(), providertest.Values{"timeouts": providertest.Values{"delete": fmt.Sprint(seconds, "s")}}))
		worker.Must(providertest.WorkerConfig(network))
		got = network.Dismiss().Failure()
	}
	for _, want := range []string{"DependencyViolation", "deadline exceeded", "network interfaces still in " + network.Get("vpc_id").(string), "of instance " + worker.Get("id").(string), "does not manage still uses it"} {
		if !strings.Contains(got, want) {
			t.Errorf("the error does not say %q: %s", want, got)
		}
	}
}
