package networks_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/k8s-from-scratch/terraform-provider-k8s/internal/provider/providertest"
)

// TestExpiresAt: the time is to come when it is set. The refresh says when it has passed, and until then a plan says nothing
// else, so that a second plan of the same apply agrees.
func TestExpiresAt(t *testing.T) {
	t.Parallel()
	now := time.Now()
	c := providertest.NewCloud(t)
	c.Now = func() time.Time { return now }
	c = c.Process(t)
	network := c.Instance("k8s_network")
	config := func(at any, more ...providertest.Values) providertest.Values {
		out := providertest.With(providertest.NetworkConfig(), providertest.Values{"expires_at": at})
		for _, m := range more {
			out = providertest.With(out, m)
		}
		return out
	}
	in := func(d time.Duration) string { return now.Add(d).UTC().Format(time.RFC3339) }
	refused := func(what, want string, at any) {
		t.Helper()
		if said := network.Plan(config(at)).Failure(); !strings.Contains(said, `expires_at"): `) || !strings.Contains(said, want) {
			t.Errorf("%s: %q", what, said)
		}
	}
	refused("a new network", "The time has passed", in(-time.Minute))
	refused("no time", "Invalid RFC3339 String Value", "tomorrow")
	refused("a time that systemd ignores", "Timers of systemd end with the year 2199", "2199-12-31T23:30:00-01:00")
	first := in(time.Hour)
	network.Must(config(first))
	network.Converged(config(first))
	paused := func() any {
		ref, _ := network.Get("ref").(providertest.Values)
		return ref["paused"]
	}
	if network.Get("expired") != false || paused() != false {
		t.Errorf("expired %v, paused %v", network.Get("expired"), paused())
	}
	refused("an earlier time", "The time has passed", in(-time.Minute))
	now = now.Add(2 * time.Hour)
	if ch := network.Plan(config(first)); !network.Empty(ch) || len(ch.Warnings) > 0 {
		t.Errorf("a plan before a refresh: %v %s", ch.Warnings, network.Differences(ch))
	}
	network.Converged(config(first))
	if network.Get("expired") != true || paused() != true || network.Get("paused") != false {
		t.Errorf("expired %v, paused %v", network.Get("expired"), paused())
	}
	refused("another time that has passed", "The time has passed", in(-time.Minute))
	unknown, _ := providertest.Plain(network.Plan(config(providertest.Unknown)).Planned).(providertest.Values)
	if ref, _ := unknown["ref"].(providertest.Values); unknown["expired"] != providertest.Unknown || ref["paused"] != providertest.Unknown {
		t.Errorf("a time that is not known yet: expired %v, %v", unknown["expired"], ref)
	}
	for name, resumes := range map[string]providertest.Values{"later": config(in(time.Hour)), "never": providertest.NetworkConfig(), "the same, paused": config(first, providertest.Values{"paused": true})} {
		planned, _ := providertest.Plain(network.Plan(resumes).Planned).(providertest.Values)
		if ref, _ := planned["ref"].(providertest.Values); ref["paused"] != (name == "the same, paused") || planned["expired"] != ref["paused"] {
			t.Errorf("%s: expired %v, %v", name, planned["expired"], ref)
		}
	}
	imported := c.Instance("k8s_network")
	imported.Imports("demo")
	imported.Must(config(in(time.Hour)))
	imported.Converged(config(in(time.Hour)))
}

// TestExpiredNLB: the load balancers of a cluster that has expired show no difference.
func TestExpiredNLB(t *testing.T) {
	t.Parallel()
	now := time.Now()
	n := &providertest.NLBCluster{Cloud: providertest.NewCloud(t)}
	n.Now = func() time.Time { return now }
	n.Cloud = n.Process(t)
	n.Network, n.NLB = n.Instance("k8s_network"), n.Instance("k8s_nlb")
	n.Network.Must(providertest.With(providertest.NetworkConfig(), providertest.Values{"expires_at": now.Add(time.Hour).UTC().Format(time.RFC3339)}))
	for i := range 2 {
		machine := n.Instance("k8s_machine")
		machine.Must(providertest.Values{"name": fmt.Sprintf("controller-%d", i), "role": "controller", "network": n.Network.Get("ref")})
		n.Controllers = append(n.Controllers, machine)
	}
	n.NLB.Must(n.Config(nil))
	now = now.Add(2 * time.Hour)
	n.Network.Refresh()
	for _, machine := range n.Controllers {
		machine.Refresh()
	}
	n.NLB.Converged(n.Config(nil))
}
