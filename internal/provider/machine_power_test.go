package provider

import (
	"context"
	"errors"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/aws/aws-sdk-go-v2/service/ec2"

	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/fleet"
	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/maintenance"
	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/remote"
	"github.com/k8s-from-scratch/terraform-provider-k8s/internal/lab/cloud/fault"
	"github.com/k8s-from-scratch/terraform-provider-k8s/internal/provider/reference"
)

// of returns the calls of this action.
func of(calls []string, action string) int {
	n := 0
	for _, c := range calls {
		if c == action {
			n++
		}
	}
	return n
}

// TestPowerState: one machine is stopped after it was asked what it does, keeps its addresses and
// host key, and starts again. Somebody else's start is drift.
func TestPowerState(t *testing.T) {
	t.Parallel()
	c := newCloud(t)
	network, worker := c.instance("k8s_network"), c.instance("k8s_machine")
	network.must(networkConfig())
	config := workerConfig(network)
	worker.must(config)
	id, _ := worker.get("id").(string)
	before, _ := worker.get("host").(values)
	off := with(config, values{"power_state": reference.Stopped})

	idle := *c.duty
	var asked int
	*c.duty = func(ctx context.Context, to fleet.Target) (*maintenance.Duty, error) {
		if asked++; asked == 1 {
			return nil, &remote.UnreachableError{Machine: "worker-0", Err: errors.New("no route to host")}
		}
		return idle(ctx, to)
	}
	if said := worker.carryOut(worker.plan(off)).failure(); !strings.Contains(said, "not stopped, since what runs on it is not known") || worker.get("power_state") != reference.Running {
		t.Fatalf("a machine that does not answer: %q, %v", said, worker.get("power_state"))
	}
	worker.must(off)
	if asked != 2 || of(c.calls(), "StopInstances") != 1 {
		t.Errorf("asked %d times, stopped %d times", asked, of(c.calls(), "StopInstances"))
	}
	host, _ := worker.get("host").(values)
	if worker.get("instance_state") != reference.Stopped || host["power_state"] != reference.Stopped || host["host_key"] != before["host_key"] || host["private_ip"] != before["private_ip"] || host["address"] != before["address"] {
		t.Errorf("it is %v, its host %v, before %v", worker.get("instance_state"), host, before)
	}
	worker.settled(off)

	if said := worker.plan(with(off, values{"root_volume_size": 30})).failure(); !strings.Contains(said, "A stopped machine's file system cannot grow") {
		t.Errorf("a larger volume: %q", said)
	}
	worker.must(with(off, values{"instance_type": "t3.large"}))
	if worker.get("instance_state") != reference.Stopped || worker.get("instance_type") != "t3.large" {
		t.Errorf("another type: %v, %v", worker.get("instance_state"), worker.get("instance_type"))
	}
	off["instance_type"], config["instance_type"] = "t3.large", "t3.large"

	answer[*ec2.StartInstancesOutput](t)(c.client.EC2.StartInstances(t.Context(), &ec2.StartInstancesInput{InstanceIds: []string{id}}))
	worker.refresh()
	if drift, _ := worker.get("drift").(values); !strings.Contains(drift["worker-0"].(string), "wanted stopped") || worker.get("instance_state") == reference.Stopped { //nolint:forcetypeassert // a string or a panic
		t.Errorf("started by somebody else: %v, %v", drift, worker.get("instance_state"))
	}
	worker.must(off)
	worker.settled(off)

	on := worker.plan(config)
	if planned, _ := plain(on.planned).(values); planned["public_ip"] != unknown || planned["instance_state"] != reference.Running {
		t.Errorf("the start is planned as %v, %v", planned["public_ip"], planned["instance_state"])
	}
	c.fatal(worker.apply(on))
	worker.settled(config)
	if worker.get("id") != id || worker.get("host_key") != before["host_key"] || worker.get("private_ip") != before["private_ip"] {
		t.Error("it is another machine")
	}
	if said := c.instance("k8s_machine").plan(with(off, values{"name": "worker-1"})).failure(); !strings.Contains(said, "A machine is created running") {
		t.Errorf("a new one that is stopped: %q", said)
	}
}

// TestStartInterrupted: an apply was killed after EC2 had accepted the start. The next one waits until
// the machine runs, and asks EC2 again for what it got.
func TestStartInterrupted(t *testing.T) {
	t.Parallel()
	c := newCloud(t)
	network, worker := c.instance("k8s_network"), c.instance("k8s_machine")
	network.must(networkConfig())
	config := workerConfig(network)
	worker.must(config)
	worker.must(with(config, values{"power_state": reference.Stopped}))
	id, _ := worker.get("id").(string)
	c.account.Fault(fault.Fault{Kind: fault.SlowStart, Seconds: 2})
	answer[*ec2.StartInstancesOutput](t)(c.client.EC2.StartInstances(t.Context(), &ec2.StartInstancesInput{InstanceIds: []string{id}}))
	worker.refresh()
	if state := worker.get("instance_state"); state != "pending" {
		t.Fatalf("it is %v", state)
	}
	worker.must(config)
	if state := worker.get("instance_state"); state != reference.Running {
		t.Errorf("it is %v", state)
	}
	worker.settled(config)
}

// TestPausedNetwork: before the first machine of a paused cluster stops, all of them are asked what
// they do, once, whatever Terraform does first. Afterwards nothing is asked, and a machine that is
// to run, or a new one, is refused.
func TestPausedNetwork(t *testing.T) {
	t.Parallel()
	c := newCloud(t)
	network := c.instance("k8s_network")
	network.must(networkConfig())
	configs := func() []values {
		ref := network.get("ref")
		return []values{
			{"name": "controller-0", "role": "controller", "network": ref, "private_ip": "10.240.0.10"},
			{"name": "controller-1", "role": "controller", "network": ref, "private_ip": "10.240.0.11"},
			{"name": "worker-0", "role": "worker", "network": ref, "private_ip": "10.240.0.20"},
			{"name": "lb-0", "role": "lb", "network": ref, "private_ip": "10.240.0.30"},
		}
	}
	var machines []*instance
	for _, config := range configs() {
		m := c.instance("k8s_machine")
		m.must(config)
		m.settled(config)
		machines = append(machines, m)
	}
	idle := *c.duty
	var mu sync.Mutex
	var asked []string
	away := "worker-0"
	*c.duty = func(ctx context.Context, to fleet.Target) (*maintenance.Duty, error) {
		mu.Lock()
		defer mu.Unlock()
		if n := of(c.calls(), "StopInstances"); n > 0 {
			t.Errorf("%s was asked after %d machines were stopped", to.Name(), n)
		}
		if asked = append(asked, to.Name()); to.Name() == away {
			return nil, &remote.UnreachableError{Machine: away, Err: errors.New("no route to host")}
		}
		return idle(ctx, to)
	}

	on, off := networkConfig(), with(networkConfig(), values{"paused": true})
	network.must(off)
	network.settled(off)
	now := configs()
	if said := machines[0].carryOut(machines[0].plan(now[0])).failure(); !strings.Contains(said, "refusing to pause the cluster: it is not known what runs on worker-0") {
		t.Fatalf("a worker does not answer: %q", said)
	}
	if n := of(c.calls(), "StopInstances"); n > 0 {
		t.Fatalf("%d machines were stopped", n)
	}
	away, asked = "", nil
	for n, m := range machines { // one at a time, the controllers first
		m.must(now[n])
	}
	slices.Sort(asked)
	if !slices.Equal(asked, []string{"controller-0", "controller-1", "worker-0"}) {
		t.Errorf("asked %q", asked)
	}
	calls := len(c.calls())
	for n, m := range machines {
		m.settled(now[n])
		if host, _ := m.get("host").(values); m.get("power_state") != reference.Stopped || host["power_state"] != reference.Paused {
			t.Errorf("%v is %v, its host %v", m.get("name"), m.get("power_state"), host["power_state"])
		}
	}
	for _, call := range c.calls()[calls:] {
		if !strings.HasPrefix(call, "Describe") && call != "GetCallerIdentity" {
			t.Errorf("the refresh of a paused machine calls %s", call)
		}
	}
	for want, config := range map[string]values{
		"so worker-0 cannot run: remove power_state": with(now[2], values{"power_state": reference.Running}),
		"": with(now[2], values{"power_state": reference.Stopped}),
	} {
		if said := machines[2].plan(config).failure(); (said == "") != (want == "") || !strings.Contains(said, want) {
			t.Errorf("power_state %v: %q", config["power_state"], said)
		}
	}
	if said := c.instance("k8s_machine").plan(with(now[2], values{"name": "worker-1", "private_ip": "10.240.0.21"})).failure(); !strings.Contains(said, "resume the cluster first") {
		t.Errorf("a new machine: %q", said)
	}

	network.must(on)
	now = configs()
	var wait sync.WaitGroup
	for n, m := range machines {
		planned := m.plan(now[n])
		wait.Go(func() { c.fatal(m.apply(planned)) })
	}
	wait.Wait()
	for n, m := range machines {
		m.settled(now[n])
		if host, _ := m.get("host").(values); m.get("instance_state") != reference.Running || host["power_state"] != reference.Running {
			t.Errorf("%v is %v, its host %v", m.get("name"), m.get("instance_state"), host["power_state"])
		}
	}
	if of(c.calls(), "StartInstances") != len(machines) || len(asked) != 3 {
		t.Errorf("%d starts; asked %q", of(c.calls(), "StartInstances"), asked)
	}
}
