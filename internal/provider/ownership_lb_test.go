package provider_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/k8s-from-scratch/terraform-provider-k8s/internal/lab/cloud/fault"
	"github.com/k8s-from-scratch/terraform-provider-k8s/internal/provider/providertest"
)

// TestFailedAddress fails to make a load balancer after its Elastic IP was allocated. The address
// is in the tainted object, which the next apply deletes before it makes another. Two load
// balancers of one cluster do not take each other's address.
func TestFailedAddress(t *testing.T) {
	t.Parallel()
	c := providertest.NewCloud(t)
	network, keys := c.Instance("k8s_network"), c.Instance("k8s_pki")
	network.Must(providertest.NetworkConfig())
	keys.Must(providertest.Values{"cluster": "demo"})
	before := c.Account.Cloud.Overview().Total
	host := providertest.Values{"name": "lb-0", "address": "203.0.113.9", "private_ip": "10.240.0.30", "host_key": providertest.PublicKey(t), "instance_id": "i-0123456789abcdef0"}
	controller := providertest.Values{"name": "controller-0", "address": "203.0.113.8", "private_ip": "10.240.0.10", "host_key": providertest.PublicKey(t)}
	config := providertest.Values{"host": host, "controllers": []any{controller}, "pki": keys.Get("ref")}
	for range 2 {
		c = c.Ends(t)
		lb := c.Instance("k8s_lb")
		c.Account.Fault(fault.Fault{Kind: fault.Fail, Action: "AssociateAddress", Code: "UnauthorizedOperation"})
		providertest.Mention(t, lb.Attempt(config), "Elastic IP")
		if lb.State.IsNull() || lb.Get("claim") == nil {
			t.Fatalf("the state is %v", lb.State)
		}
		second := c.Instance("k8s_lb")
		if providertest.Mention(t, second.Attempt(config), "belongs to another state"); !second.State.IsNull() {
			t.Error("a second load balancer has the address of the first")
		}
		c = c.Ends(t)
		lb = c.Taken(lb)
		// Nothing is asked at an address that does not lead to the machine.
		if seen := lb.Look(); len(seen.Warnings) > 0 {
			t.Errorf("%v", seen.Warnings)
		}
		if drift, _ := lb.Get("drift").(providertest.Values); !strings.Contains(fmt.Sprint(drift["elastic-ip"]), "not associated, wanted i-0123456789abcdef0") {
			t.Errorf("drift %v", lb.Get("drift"))
		}
		providertest.Mention(t, c.Instance("k8s_lb").Attempt(config), "belongs to another state")
		providertest.Mention(t, c.Elsewhere(c.Taken(lb)), "Cannot delete load balancer demo", "region eu-central-1", "Nothing was")
		lb.Taint()
		if after := c.Account.Cloud.Overview().Total; after != before {
			t.Errorf("%d things were %d", after, before)
		}
	}
}
