package topologies_test

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/k8s-from-scratch/terraform-provider-k8s/internal/e2e/harness"
)

// testWrongAddresses applies with virtual addresses that the load balancers cannot have.
func testWrongAddresses(t *testing.T, c *harness.Cluster) {
	for address, word := range map[string]string{
		"192.168.78.9":   "does not lie in " + lanNetwork,
		"192.168.77.255": "broadcast address of the network " + lanNetwork,
		lanRouter:        "another machine in the network has " + lanRouter + " already",
	} {
		if err := c.WS.WriteFile("lb_override.tf", "resource \"k8s_lb\" \"this\" {\n  virtual_ip = \""+address+"\"\n}\n"); err != nil {
			t.Fatal(err)
		}
		_, err := c.WS.Apply(t.Context(), "-target=k8s_lb.this")
		harness.Refused(t, err, word, "nothing has been changed")
	}
	if err := c.WS.WriteFile("lb_override.tf", ""); err != nil {
		t.Fatal(err)
	}
}

// testDeaf applies while the machine with the address cannot send its announcements to the other one.
func testDeaf(t *testing.T, c *harness.Cluster) {
	holder := addressHolder(t, c, ownVirtualIP, "lb-0", "lb-1")
	deaf := map[string]string{"lb-0": "lb-1", "lb-1": "lb-0"}[holder]
	for machine, peer := range map[string]string{holder: deaf, deaf: holder} {
		c.Sh(t, machine, "ip route add blackhole "+c.Addresses[peer]+"/32")
	}
	if err := c.WS.WriteFile("lb_override.tf", "resource \"k8s_lb\" \"this\" {\n  virtual_router_id = 52\n}\n"); err != nil {
		t.Fatal(err)
	}
	_, err := c.WS.Apply(t.Context())
	harness.Refused(t, err, "lb-0, lb-1 each have "+ownVirtualIP, "IP protocol 112")
	for machine, peer := range map[string]string{holder: deaf, deaf: holder} {
		c.Sh(t, machine, "ip route del blackhole "+c.Addresses[peer]+"/32")
	}
	c.Apply(t)
	addressHolder(t, c, ownVirtualIP, "lb-0", "lb-1")
	c.NoChanges(t)
}

// testOtherAddress changes the virtual address in two applies. Clients of the old one go on until the second.
func testOtherAddress(t *testing.T, c *harness.Cluster) {
	override := func(former string) {
		t.Helper()
		text := "resource \"k8s_lb\" \"this\" {\n  virtual_ip = \"" + otherVirtualIP + "\"\n" + former + "}\n"
		if err := c.WS.WriteFile("lb_override.tf", text); err != nil {
			t.Fatal(err)
		}
	}
	old := c.Kubeconfig
	override("")
	if _, text, err := c.WS.Plan(t.Context()); err != nil {
		t.Fatal(err)
	} else {
		harness.Says(t, text, "Workers cannot reach the API until they are changed", "former_virtual_ips = [\""+ownVirtualIP+"\"]")
	}
	override("  former_virtual_ips = [\"" + ownVirtualIP + "\"]\n")
	traffic := c.Traffic(t, old)
	c.Apply(t)
	gap := traffic.Gap(t)
	t.Logf("figures: the virtual address changes: longest gap of the API at the old address %s", gap.Round(100*time.Millisecond))
	if gap > movedAddressWanted {
		t.Errorf("the API was silent for %s", gap)
	}
	c.NoChanges(t)
	if now, before := addressHolder(t, c, otherVirtualIP, "lb-0", "lb-1"), addressHolder(t, c, ownVirtualIP, "lb-0", "lb-1"); now != before {
		t.Errorf("%s has the address, and %s the former one", now, before)
	}
	learnOwn(t, c)
	c.Kubectl(t, "get", "namespaces")
	override("")
	c.Apply(t)
	c.NoChanges(t)
	answers(t, c)
	for _, m := range []string{"lb-0", "lb-1"} {
		if out := c.Sh(t, m, "ip -4 -o address show to "+ownVirtualIP); out != "" {
			t.Errorf("%s keeps the former address: %s", m, out)
		}
	}
}

// answers waits until the API answers at the cluster's endpoint.
func answers(t *testing.T, c *harness.Cluster) {
	t.Helper()
	harness.Eventually(t, time.Minute, "the API answers", func() error {
		_, err := suite.Kubectl(t.Context(), c.Kubeconfig, nil, "get", "namespaces", "--request-timeout=5s")
		return err
	})
}

// etcdLeader returns the machine whose member of etcd leads.
func etcdLeader(t *testing.T, c *harness.Cluster, machines ...string) (leader string) {
	t.Helper()
	harness.Eventually(t, 30*time.Second, "one member leads", func() error {
		for _, m := range machines {
			out, err := c.TrySh(t.Context(), m, harness.Etcdctl+"endpoint status")
			if err != nil {
				return err
			}
			if strings.Contains(out, ", true, false,") {
				leader = m
				return nil
			}
		}
		return errors.New("none does")
	})
	return leader
}
