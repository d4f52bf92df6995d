package machines_test

import (
	"strings"
	"testing"

	"github.com/aws/aws-sdk-go-v2/service/ec2/types"

	"github.com/k8s-from-scratch/terraform-provider-k8s/internal/provider/providertest"
	"github.com/k8s-from-scratch/terraform-provider-k8s/internal/provider/reference"
)

// TestSpotMachine: a worker is launched as a Spot instance, its interruption is named, and the next apply launches
// another one.
func TestSpotMachine(t *testing.T) {
	t.Parallel()
	c := providertest.NewCloud(t)
	network, worker := c.Instance("k8s_network"), c.Instance("k8s_machine")
	network.Must(providertest.NetworkConfig())
	config := func(spot any, more ...providertest.Values) providertest.Values {
		out := providertest.With(providertest.WorkerConfig(network), providertest.Values{"spot": spot})
		for _, m := range more {
			out = providertest.With(out, m)
		}
		return out
	}
	spot := providertest.Values{"max_price": "0.05", "drain_on_rebalance": true}
	worker.Must(config(spot))
	worker.Converged(config(spot))
	first := c.Found(t, worker)
	if first.InstanceLifecycle != types.InstanceLifecycleTypeSpot {
		t.Errorf("the instance is %q", first.InstanceLifecycle)
	}
	if host := worker.Get("host").(providertest.Values); host["drain_on_rebalance"] != true {
		t.Errorf("the host has drain_on_rebalance %v", host["drain_on_rebalance"])
	}

	imported := c.Instance("k8s_machine")
	imported.Imports(*first.InstanceId)
	imported.Must(config(spot))
	imported.Converged(config(spot))

	// Another price waits for the next launch. What would stop the instance replaces it.
	if ch := worker.Plan(config(providertest.Values{})); len(ch.Replace) > 0 || ch.Failure() != "" {
		t.Errorf("another price: replaces because of %v, %q", ch.Replace, ch.Failure())
	}
	for name, tc := range map[string]struct {
		config providertest.Values
		why    string
	}{
		"On-Demand":            {config(nil), "spot"},
		"another type":         {config(spot, providertest.Values{"instance_type": "t3.large"}), "instance_type"},
		"in a placement group": {config(spot, providertest.Values{"placement_group": "apart"}), "placement_group"},
	} {
		ch := worker.Plan(tc.config)
		if ch.Failure() != "" || !strings.Contains(strings.Join(ch.Replace, " "), tc.why) {
			t.Errorf("%s: replaces because of %v, %q", name, ch.Replace, ch.Failure())
		}
		if planned, _ := providertest.Plain(ch.Planned).(providertest.Values); tc.why != "spot" && planned["id"] != providertest.Unknown {
			t.Errorf("%s: the id is planned as %v", name, planned["id"])
		}
	}

	for name, tc := range map[string]struct {
		config providertest.Values
		at     string
		says   string
	}{
		"a controller":  {providertest.With(config(spot), providertest.Values{"name": "controller-0", "role": "controller", "pod_cidr": nil}), "spot", "which is for workers"},
		"etcd":          {providertest.With(config(spot), providertest.Values{"name": "etcd-0", "role": "etcd", "pod_cidr": nil}), "spot", "which is for workers"},
		"load balancer": {providertest.With(config(spot), providertest.Values{"name": "lb-0", "role": "lb", "pod_cidr": nil}), "spot", "which is for workers"},
		"no price":      {config(providertest.Values{"max_price": "cheap"}), "spot", "is no price"},
		"free":          {config(providertest.Values{"max_price": "0"}), "spot", "is no price"},
	} {
		if ch := c.Instance("k8s_machine").Plan(tc.config); !strings.Contains(flat(ch.Failure()), tc.says) || !at(ch, tc.at) {
			t.Errorf("%s: %q", name, ch.Failure())
		}
	}
	if ch := worker.Plan(config(spot, providertest.Values{"power_state": reference.Stopped})); !strings.Contains(flat(ch.Failure()), "EC2 never stops") || !at(ch, "power_state") {
		t.Errorf("stopped: %q", ch.Failure())
	}
	if ch := c.Instance("k8s_machine").Plan(config(spot, providertest.Values{"data_volume": providertest.Values{"id": "vol-0123456789abcdef0"}})); !strings.Contains(providertest.Warnings(ch), "Data on a Spot machine") {
		t.Errorf("a data volume: %q", providertest.Warnings(ch))
	}

	c.Account.Interrupt(*first.InstanceId, 0.1)
	c.Ended(t, *first.InstanceId)
	if said := flat(providertest.Warnings(worker.Look())); !strings.Contains(said, "a Spot instance, was interrupted by EC2") || !strings.Contains(said, "The next apply creates it again.") {
		t.Errorf("the refresh says %q", said)
	}
	worker.Must(config(spot))
	worker.Converged(config(spot))
	if next := c.Found(t, worker); *next.InstanceId == *first.InstanceId || next.InstanceLifecycle != types.InstanceLifecycleTypeSpot {
		t.Errorf("afterwards it is %s, %q", *next.InstanceId, next.InstanceLifecycle)
	}

	low := c.Instance("k8s_machine")
	if ch := low.CarryOut(low.Plan(config(providertest.Values{"max_price": "0.0001"}, providertest.Values{"name": "worker-1", "private_ip": "10.240.0.21", "pod_cidr": "10.200.1.0/24"}))); !strings.Contains(flat(ch.Failure()), "SpotMaxPriceTooLow") || !strings.Contains(flat(ch.Failure()), "raise max_price") || !at(ch, "spot") {
		t.Errorf("a low price: %q", ch.Failure())
	}
	c.Fatal(worker.Apply(worker.Plan(nil)))
	c.Fatal(network.Apply(network.Plan(nil)))
	c.Account.Empty()
}

// TestPausedSpotMachine: a cluster with a Spot machine cannot be paused.
func TestPausedSpotMachine(t *testing.T) {
	t.Parallel()
	c := providertest.NewCloud(t)
	network, worker := c.Instance("k8s_network"), c.Instance("k8s_machine")
	network.Must(providertest.NetworkConfig())
	worker.Must(providertest.With(providertest.WorkerConfig(network), providertest.Values{"spot": providertest.Values{}}))
	network.Must(providertest.With(providertest.NetworkConfig(), providertest.Values{"paused": true}))
	if ch := worker.Plan(providertest.With(providertest.WorkerConfig(network), providertest.Values{"spot": providertest.Values{}})); !strings.Contains(flat(ch.Failure()), "paused = true, and worker-0 is a Spot instance") || !at(ch, "network") {
		t.Errorf("paused: %q", ch.Failure())
	}
}

// TestSpotPolicy: the policy of the guide is enough for the account's first Spot instance, and without its statement about
// that the error says what is missing.
func TestSpotPolicy(t *testing.T) {
	t.Parallel()
	everyday, destroy := providertest.ReadPolicy(t, "everyday.json"), providertest.ReadPolicy(t, "destroy.json").Without("")
	for without, want := range map[string]string{"": "", "iam:CreateServiceLinkedRole": "allow iam:CreateServiceLinkedRole, as the guide on IAM shows"} {
		r := providertest.NewRestricted(t, everyday.Without(without), destroy)
		network, worker := r.Instance("k8s_network"), r.Instance("k8s_machine")
		network.Must(providertest.NetworkConfig())
		got := flat(worker.Attempt(providertest.With(providertest.WorkerConfig(network), providertest.Values{"spot": providertest.Values{}})))
		if (want == "") != (got == "") || !strings.Contains(got, want) {
			t.Errorf("without %q: %q", without, got)
		}
	}
}

func flat(s string) string { return strings.Join(strings.Fields(s), " ") }
