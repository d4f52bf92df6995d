package networks_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/k8s-from-scratch/terraform-provider-k8s/internal/provider/providertest"
)

// admins returns n networks, of which the first is that of providertest.NetworkConfig.
func admins(n int) (out []any) {
	for i := range n {
		out = append(out, fmt.Sprintf("198.51.100.%d/32", 7+i))
	}
	return out
}

// TestTooManyNetworks checks that a plan warns of more rules than a security group takes by default, on the argument that
// needs them.
func TestTooManyNetworks(t *testing.T) {
	t.Parallel()
	c := providertest.OfflineCore(t)
	plan := func(more providertest.Values) providertest.Change {
		return c.Instance("k8s_network").Plan(providertest.With(providertest.NetworkConfig(), more))
	}
	for _, more := range []providertest.Values{
		{"admin_cidrs": admins(30), "bastion_role": "lb", "instance_connect_endpoint": true},
		{"admin_cidrs": admins(55), "nodeport_cidrs": admins(28)},
		{"admin_cidrs": admins(45), "controller_pods": true},
	} {
		if said := providertest.Warnings(plan(more)); strings.Contains(said, "fit") {
			t.Errorf("%d networks: %s", len(more["admin_cidrs"].([]any)), said)
		}
	}
	for _, test := range []struct {
		more      providertest.Values
		at, wants string
	}{
		{providertest.Values{"admin_cidrs": admins(56)}, "admin_cidrs", "56 networks are given, and 55 fit: AWS allows 60 rules"},
		{providertest.Values{"admin_cidrs": admins(46), "controller_pods": true}, "admin_cidrs", "46 networks are given, and 45 fit"},
		{providertest.Values{"nodeport_cidrs": admins(29)}, "nodeport_cidrs", "29 networks are given, and 28 fit"},
	} {
		ch := plan(test.more)
		providertest.Mention(t, providertest.Warnings(ch), "More networks than fit by default", test.wants, "L-0EA8095F")
		if at := fmt.Sprintf("AttributeName(%q)", test.at); len(ch.Errors) > 0 || ch.Warnings[0].Attribute.String() != at {
			t.Errorf("%v, %v, not one warning at %s", ch.Errors, ch.Warnings, at)
		}
	}
}

// TestManyNetworks makes a network with as many networks as fit, and then lets in others in place of all but one: there is no
// room for both at the same time.
func TestManyNetworks(t *testing.T) {
	t.Parallel()
	c := providertest.NewCloud(t)
	network := c.Instance("k8s_network")
	others := append(admins(56)[55:], admins(1)...)
	for i := range 53 {
		others = append(others, fmt.Sprintf("203.0.113.%d/32", i))
	}
	for _, networks := range [][]any{admins(55), others} {
		config := providertest.With(providertest.NetworkConfig(), providertest.Values{"admin_cidrs": networks})
		network.Must(config)
		network.Converged(config)
	}
	imported := c.Instance("k8s_network")
	imported.Imports("demo")
	if got := imported.Get("admin_cidrs").([]any); len(got) != 55 {
		t.Errorf("imported with %d networks", len(got))
	}
	c.Fatal(network.Apply(network.Plan(nil)))
	c.Account.Empty()
}
