package topologies_test

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/k8s-from-scratch/terraform-provider-k8s/internal/e2e/harness"
)

const (
	ownVirtualIP   = "192.168.77.9"
	otherVirtualIP = "192.168.77.8"
	// movedAddressWanted is how long the API may be silent while its address moves: three announcements a second
	// apart, and what clients take to notice.
	movedAddressWanted = 20 * time.Second
	// lostControllerWanted is how long it may be silent when a controller is lost: HAProxy notices after three
	// checks, and etcd may have to elect a leader.
	lostControllerWanted = 20 * time.Second
)

// TestOwnLoadBalancers has three API servers behind the virtual address of two load balancers, on machines without
// EC2. It moves the address, loses a controller as well, and changes the address.
func TestOwnLoadBalancers(t *testing.T) {
	inSoak(t)
	l := newLAN(t)
	machines := map[string]lanMachine{"controller-0": l.start(1, "controller-0", 2560), "controller-1": l.start(2, "controller-1", 2560), "controller-2": l.start(3, "controller-2", 2560),
		"lb-0": l.start(4, "lb-0", 512), "lb-1": l.start(5, "lb-1", 512)}
	c := onOwnMachines(t, "own-machines", machines, map[string]any{
		"network": lanNetwork, "controllers": []lanMachine{machines["controller-0"], machines["controller-1"], machines["controller-2"]}, "load_balancers": []lanMachine{machines["lb-0"], machines["lb-1"]},
		"virtual_ip": ownVirtualIP, "kubernetes_version": harness.KubernetesVersion,
	})
	names := slices.Sorted(maps.Keys(machines))
	step := harness.Steps(t)
	before := map[string]string{}
	step("wrong addresses are refused before anything changes", func(t *testing.T) {
		for _, name := range names {
			before[name] = c.Sh(t, name, ownState)
		}
		testWrongAddresses(t, c)
		for _, name := range names {
			if after := c.Sh(t, name, ownState); after != before[name] {
				t.Errorf("%s had\n%s\nand has\n%s", name, before[name], after)
			}
		}
	})
	step("apply", func(t *testing.T) {
		c.Apply(t)
		learnOwn(t, c)
		var endpoint string
		if err := c.WS.Output(t.Context(), "endpoint", &endpoint); err != nil || endpoint != "https://"+ownVirtualIP+":6443" {
			t.Errorf("endpoint %s (%v)", endpoint, err)
		}
	})
	step("second plan is empty", c.NoChanges)
	holder := ""
	step("one machine has the address", func(t *testing.T) {
		holder = addressHolder(t, c, ownVirtualIP, "lb-0", "lb-1")
		c.Kubectl(t, "get", "namespaces")
	})
	other := map[string]string{"lb-0": "lb-1", "lb-1": "lb-0"}
	step("the machine with the address loses its power", func(t *testing.T) {
		traffic := c.Traffic(t, c.Kubeconfig)
		time.Sleep(3 * time.Second) // of undisturbed traffic
		l.cut(t, holder)
		if now := addressHolder(t, c, ownVirtualIP, other[holder]); now != other[holder] {
			t.Errorf("%s has the address", now)
		}
		answers(t, c)
		time.Sleep(2 * time.Second)
		gap := traffic.Gap(t)
		t.Logf("figures: load balancer lost: longest gap of the API %s", gap.Round(100*time.Millisecond))
		if gap > movedAddressWanted {
			t.Errorf("the API was silent for %s", gap)
		}
	})
	lost := ""
	step("and so does the controller with the leader of etcd", func(t *testing.T) {
		lost = etcdLeader(t, c, "controller-0", "controller-1", "controller-2")
		traffic := c.Traffic(t, c.Kubeconfig)
		time.Sleep(3 * time.Second)
		l.cut(t, lost)
		time.Sleep(10 * time.Second)
		answers(t, c)
		time.Sleep(2 * time.Second)
		gap := traffic.Gap(t)
		t.Logf("figures: a load balancer and %s lost: longest gap of the API %s", lost, gap.Round(100*time.Millisecond))
		if gap > lostControllerWanted {
			t.Errorf("the API was silent for %s", gap)
		}
		l.boot(t, lost)
		harness.Eventually(t, 2*time.Minute, lost+" is back", func() error {
			_, err := c.TrySh(t.Context(), lost, "curl --silent --fail --insecure https://127.0.0.1:6443/readyz")
			return err
		})
	})
	step("it does not take the address back", func(t *testing.T) {
		l.boot(t, holder)
		harness.Eventually(t, 2*time.Minute, holder+" is back", func() error {
			_, err := c.TrySh(t.Context(), holder, "systemctl is-active k8s-virtual-address haproxy")
			return err
		})
		time.Sleep(6 * time.Second) // in which it would
		if now := addressHolder(t, c, ownVirtualIP, "lb-0", "lb-1"); now != other[holder] {
			t.Errorf("%s has the address", now)
		}
		c.NoChanges(t)
	})
	step("HAProxy stops on the machine with the address", func(t *testing.T) {
		traffic := c.Traffic(t, c.Kubeconfig)
		time.Sleep(2 * time.Second)
		c.Sh(t, other[holder], "systemctl stop haproxy")
		harness.Eventually(t, 30*time.Second, "the address moves", func() error {
			if out, err := c.TrySh(t.Context(), holder, "ip -4 -o address show to "+ownVirtualIP); err != nil || out == "" {
				return fmt.Errorf("%s does not have it: %w", holder, err)
			}
			return nil
		})
		time.Sleep(2 * time.Second)
		if gap := traffic.Gap(t); gap > movedAddressWanted {
			t.Errorf("the API was silent for %s", gap)
		}
		changes, text, err := c.WS.Plan(t.Context())
		if err != nil || !changes {
			t.Fatalf("changes %t, %v", changes, err)
		}
		harness.Says(t, text, "k8s_lb.this[0]", other[holder], "unit haproxy.service: stopped, wanted running")
		c.Apply(t)
		c.NoChanges(t)
	})
	step("two machines that do not hear each other are an error", func(t *testing.T) { testDeaf(t, c) })
	step("the address changes and keeps clients", func(t *testing.T) { testOtherAddress(t, c) })
	step("destroy leaves nothing", func(t *testing.T) {
		c.Destroy(t)
		for _, name := range names {
			if after := c.Sh(t, name, ownState); after != before[name] {
				t.Errorf("%s had\n%s\nand has\n%s", name, before[name], after)
			}
		}
	})
}

// addressHolder waits until exactly one of the machines has the virtual address, and returns it.
func addressHolder(t *testing.T, c *harness.Cluster, address string, machines ...string) (holder string) {
	t.Helper()
	harness.Eventually(t, 30*time.Second, "one machine has the virtual address", func() error {
		var holders []string
		for _, m := range machines {
			out, err := c.TrySh(t.Context(), m, "ip -4 -o address show to "+address)
			if err != nil {
				return err
			}
			if strings.Contains(out, address) {
				holders = append(holders, m)
			}
		}
		if len(holders) != 1 {
			return fmt.Errorf("it is on %v", holders)
		}
		holder = holders[0]
		return nil
	})
	return holder
}
