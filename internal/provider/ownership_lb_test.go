package provider

import (
	"fmt"
	"strings"
	"testing"

	"github.com/k8s-from-scratch/terraform-provider-k8s/internal/lab/cloud/fault"
)

// TestFailedAddress fails to make a load balancer after its Elastic IP was allocated. The address
// is in the tainted object, which the next apply deletes before it makes another. Two load
// balancers of one cluster do not take each other's address.
func TestFailedAddress(t *testing.T) {
	t.Parallel()
	c := newCloud(t)
	network, keys := c.instance("k8s_network"), c.instance("k8s_pki")
	network.must(networkConfig())
	keys.must(values{"cluster": "demo"})
	before := c.account.Cloud.Overview().Total
	host := values{"name": "lb-0", "address": "203.0.113.9", "private_ip": "10.240.0.30", "host_key": publicKey(t), "instance_id": "i-0123456789abcdef0"}
	controller := values{"name": "controller-0", "address": "203.0.113.8", "private_ip": "10.240.0.10", "host_key": publicKey(t)}
	config := values{"cluster": "demo", "host": host, "controllers": []any{controller}, "pki": keys.get("ref")}
	for range 2 {
		c = c.ends(t)
		lb := c.instance("k8s_lb")
		c.account.Fault(fault.Fault{Kind: fault.Fail, Action: "AssociateAddress", Code: "UnauthorizedOperation"})
		mention(t, lb.attempt(config), "Elastic IP")
		if lb.state.IsNull() || lb.get("claim") == nil {
			t.Fatalf("the state is %v", lb.state)
		}
		second := c.instance("k8s_lb")
		if mention(t, second.attempt(config), "is another's"); !second.state.IsNull() {
			t.Error("a second load balancer has the address of the first")
		}
		c = c.ends(t)
		lb = c.taken(lb)
		// What answers at an address that does not lead to the machine is not asked.
		if seen := lb.look(); len(seen.warnings) > 0 {
			t.Errorf("%v", seen.warnings)
		}
		if drift, _ := lb.get("drift").(values); !strings.Contains(fmt.Sprint(drift["elastic-ip"]), "not associated, wanted i-0123456789abcdef0") {
			t.Errorf("drift %v", lb.get("drift"))
		}
		mention(t, c.instance("k8s_lb").attempt(config), "is another's")
		mention(t, c.elsewhere(c.taken(lb)), "Cannot delete load balancer demo", "region eu-central-1", "Nothing was")
		lb.taint()
		if after := c.account.Cloud.Overview().Total; after != before {
			t.Errorf("%d things were %d", after, before)
		}
	}
}

// elsewhere deletes a resource in another region than the state's, and returns the errors.
func (c cloud) elsewhere(i *instance) string {
	i.core.t.Helper()
	for _, d := range c.provider.data {
		client, err := d.LoadAWS()
		if err != nil {
			i.core.t.Fatal(err)
		}
		region := client.Region
		client.Region = "eu-central-1"
		defer func() { client.Region = region }()
	}
	return i.dismiss().failure()
}
