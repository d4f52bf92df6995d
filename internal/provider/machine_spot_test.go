package provider

import (
	"strings"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/service/ec2/types"

	awsmachine "github.com/k8s-from-scratch/terraform-provider-k8s/infra/aws/machine"
	"github.com/k8s-from-scratch/terraform-provider-k8s/internal/provider/reference"
)

// TestSpotMachine: a worker is launched as a Spot instance, its interruption is named, and the next apply launches
// another one.
func TestSpotMachine(t *testing.T) {
	t.Parallel()
	c := newCloud(t)
	network, worker := c.instance("k8s_network"), c.instance("k8s_machine")
	network.must(networkConfig())
	config := func(spot any, more ...values) values {
		out := with(workerConfig(network), values{"spot": spot})
		for _, m := range more {
			out = with(out, m)
		}
		return out
	}
	spot := values{"max_price": "0.05"}
	worker.must(config(spot))
	worker.settled(config(spot))
	first := c.found(t, worker)
	if first.InstanceLifecycle != types.InstanceLifecycleTypeSpot {
		t.Errorf("the instance is %q", first.InstanceLifecycle)
	}
	if host := worker.get("host").(values); host["spot"] != true {
		t.Errorf("the host has spot %v", host["spot"])
	}

	imported := c.instance("k8s_machine")
	imported.imports(*first.InstanceId)
	imported.must(config(spot))
	imported.settled(config(spot))

	// Another price waits for the next launch. What would stop the instance replaces it.
	if ch := worker.plan(config(values{})); len(ch.replace) > 0 || ch.failure() != "" {
		t.Errorf("another price: replaces because of %v, %q", ch.replace, ch.failure())
	}
	for name, tc := range map[string]struct {
		config values
		why    string
	}{
		"On-Demand":            {config(nil), "spot"},
		"another type":         {config(spot, values{"instance_type": "t3.large"}), "instance_type"},
		"in a placement group": {config(spot, values{"placement_group": "apart"}), "placement_group"},
	} {
		ch := worker.plan(tc.config)
		if ch.failure() != "" || !strings.Contains(strings.Join(ch.replace, " "), tc.why) {
			t.Errorf("%s: replaces because of %v, %q", name, ch.replace, ch.failure())
		}
		if planned, _ := plain(ch.planned).(values); tc.why != "spot" && planned["id"] != unknown {
			t.Errorf("%s: the id is planned as %v", name, planned["id"])
		}
	}

	for name, tc := range map[string]struct {
		config values
		at     string
		says   string
	}{
		"a controller":  {with(config(spot), values{"name": "controller-0", "role": "controller", "pod_cidr": nil}), "spot", "which is for workers"},
		"etcd":          {with(config(spot), values{"name": "etcd-0", "role": "etcd", "pod_cidr": nil}), "spot", "which is for workers"},
		"load balancer": {with(config(spot), values{"name": "lb-0", "role": "lb", "pod_cidr": nil}), "spot", "which is for workers"},
		"no price":      {config(values{"max_price": "cheap"}), "spot", "is no price"},
		"free":          {config(values{"max_price": "0"}), "spot", "is no price"},
	} {
		if ch := c.instance("k8s_machine").plan(tc.config); !strings.Contains(flat(ch.failure()), tc.says) || !at(ch, tc.at) {
			t.Errorf("%s: %q", name, ch.failure())
		}
	}
	if ch := worker.plan(config(spot, values{"power_state": reference.Stopped})); !strings.Contains(flat(ch.failure()), "EC2 stops never") || !at(ch, "power_state") {
		t.Errorf("stopped: %q", ch.failure())
	}
	if ch := c.instance("k8s_machine").plan(config(spot, values{"data_volume": values{"id": "vol-0123456789abcdef0"}})); !strings.Contains(warnings(ch), "Data on a Spot machine") {
		t.Errorf("a data volume: %q", warnings(ch))
	}

	c.account.Interrupt(*first.InstanceId, 0.1)
	c.ended(t, *first.InstanceId)
	if said := flat(warnings(worker.look())); !strings.Contains(said, "a Spot instance, was interrupted by EC2") || !strings.Contains(said, "The next apply creates it again.") {
		t.Errorf("the refresh says %q", said)
	}
	worker.must(config(spot))
	worker.settled(config(spot))
	if next := c.found(t, worker); *next.InstanceId == *first.InstanceId || next.InstanceLifecycle != types.InstanceLifecycleTypeSpot {
		t.Errorf("afterwards it is %s, %q", *next.InstanceId, next.InstanceLifecycle)
	}

	low := c.instance("k8s_machine")
	if ch := low.carryOut(low.plan(config(values{"max_price": "0.0001"}, values{"name": "worker-1", "private_ip": "10.240.0.21", "pod_cidr": "10.200.1.0/24"}))); !strings.Contains(flat(ch.failure()), "SpotMaxPriceTooLow") || !strings.Contains(flat(ch.failure()), "remove max_price") || !at(ch, "spot") {
		t.Errorf("a low price: %q", ch.failure())
	}
	c.fatal(worker.apply(worker.plan(nil)))
	c.fatal(network.apply(network.plan(nil)))
	c.account.Empty()
}

// TestSpotHostOfImport: a role that is imported finds out which of its machines are Spot instances.
func TestSpotHostOfImport(t *testing.T) {
	for spot, want := range map[bool]any{true: true, false: nil} {
		if got := hostArgument(t.Context(), awsmachine.Machine{Name: "worker-0", Spot: spot})["spot"]; got != want {
			t.Errorf("a Spot instance %t: %v", spot, got)
		}
	}
}

// TestPausedSpotMachine: a cluster with a Spot machine cannot be paused.
func TestPausedSpotMachine(t *testing.T) {
	t.Parallel()
	c := newCloud(t)
	network, worker := c.instance("k8s_network"), c.instance("k8s_machine")
	network.must(networkConfig())
	worker.must(with(workerConfig(network), values{"spot": values{}}))
	network.must(with(networkConfig(), values{"paused": true}))
	if ch := worker.plan(with(workerConfig(network), values{"spot": values{}})); !strings.Contains(flat(ch.failure()), "paused = true, and worker-0 is a Spot instance") || !at(ch, "network") {
		t.Errorf("paused: %q", ch.failure())
	}
}

// TestSpotPolicy: the policy of the guide is enough for the account's first Spot instance, and without its statement about
// that the error says what is missing.
func TestSpotPolicy(t *testing.T) {
	t.Parallel()
	everyday, destroy := readPolicy(t, "everyday.json"), readPolicy(t, "destroy.json").without("")
	for without, want := range map[string]string{"": "", "iam:CreateServiceLinkedRole": "allow iam:CreateServiceLinkedRole, as the guide on IAM shows"} {
		r := newRestricted(t, everyday.without(without), destroy)
		network, worker := r.instance("k8s_network"), r.instance("k8s_machine")
		network.must(networkConfig())
		got := flat(worker.attempt(with(workerConfig(network), values{"spot": values{}})))
		if (want == "") != (got == "") || !strings.Contains(got, want) {
			t.Errorf("without %q: %q", without, got)
		}
	}
}

// ended waits until an instance is terminated.
func (c cloud) ended(t *testing.T, id string) {
	t.Helper()
	for end := time.Now().Add(10 * time.Second); ; time.Sleep(20 * time.Millisecond) {
		gone := true
		for _, i := range c.account.Cloud.Overview().Instances {
			gone = gone && i.ID != id
		}
		if gone {
			return
		}
		if time.Now().After(end) {
			t.Fatalf("%s does not end", id)
		}
	}
}

func flat(s string) string { return strings.Join(strings.Fields(s), " ") }
