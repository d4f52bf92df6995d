package machines_test

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
	"github.com/k8s-from-scratch/terraform-provider-k8s/internal/provider/providertest"
	"github.com/k8s-from-scratch/terraform-provider-k8s/internal/provider/reference"
)

// of returns the number of calls of an action.
func of(calls []string, action string) int {
	n := 0
	for _, c := range calls {
		if c == action {
			n++
		}
	}
	return n
}

// TestPowerState: a machine is first asked what it does for the cluster, and then stopped. It keeps
// its addresses and host key, and starts again. A start by somebody else is drift.
func TestPowerState(t *testing.T) {
	t.Parallel()
	c := providertest.NewCloud(t)
	network, worker := c.Instance("k8s_network"), c.Instance("k8s_machine")
	network.Must(providertest.NetworkConfig())
	config := providertest.WorkerConfig(network)
	worker.Must(config)
	id, _ := worker.Get("id").(string)
	before, _ := worker.Get("host").(providertest.Values)
	off := providertest.With(config, providertest.Values{"power_state": reference.Stopped})

	idle := *c.Duty
	var asked int
	*c.Duty = func(ctx context.Context, to fleet.Target) (*maintenance.Duty, error) {
		if asked++; asked == 1 {
			return nil, &remote.UnreachableError{Machine: "worker-0", Err: errors.New("no route to host")}
		}
		return idle(ctx, to)
	}
	if said := worker.CarryOut(worker.Plan(off)).Failure(); !strings.Contains(said, "not stopped, since what runs on it is not known") || worker.Get("power_state") != reference.Running {
		t.Fatalf("a machine that does not answer: %q, %v", said, worker.Get("power_state"))
	}
	worker.Must(off)
	if asked != 2 || of(c.Calls(), "StopInstances") != 1 {
		t.Errorf("asked %d times, stopped %d times", asked, of(c.Calls(), "StopInstances"))
	}
	host, _ := worker.Get("host").(providertest.Values)
	if worker.Get("instance_state") != reference.Stopped || host["power_state"] != reference.Stopped || host["host_key"] != before["host_key"] || host["private_ip"] != before["private_ip"] || host["address"] != before["address"] {
		t.Errorf("it is %v, its host %v, before %v", worker.Get("instance_state"), host, before)
	}
	worker.Converged(off)

	if said := worker.Plan(providertest.With(off, providertest.Values{"root_volume_size": 30})).Failure(); !strings.Contains(said, "A stopped machine's file system cannot grow") {
		t.Errorf("a larger volume: %q", said)
	}
	worker.Must(providertest.With(off, providertest.Values{"instance_type": "t3.large"}))
	if worker.Get("instance_state") != reference.Stopped || worker.Get("instance_type") != "t3.large" {
		t.Errorf("another type: %v, %v", worker.Get("instance_state"), worker.Get("instance_type"))
	}
	off["instance_type"], config["instance_type"] = "t3.large", "t3.large"

	providertest.Answer[*ec2.StartInstancesOutput](t)(c.Client.EC2.StartInstances(t.Context(), &ec2.StartInstancesInput{InstanceIds: []string{id}}))
	worker.Refresh()
	if drift, _ := worker.Get("drift").(providertest.Values); !strings.Contains(drift["worker-0"].(string), "wanted stopped") || worker.Get("instance_state") == reference.Stopped { //nolint:forcetypeassert // a string or a panic
		t.Errorf("started by somebody else: %v, %v", drift, worker.Get("instance_state"))
	}
	worker.Must(off)
	worker.Converged(off)

	on := worker.Plan(config)
	if planned, _ := providertest.Plain(on.Planned).(providertest.Values); planned["public_ip"] != providertest.Unknown || planned["instance_state"] != reference.Running {
		t.Errorf("the start is planned as %v, %v", planned["public_ip"], planned["instance_state"])
	}
	c.Fatal(worker.Apply(on))
	worker.Converged(config)
	if worker.Get("id") != id || worker.Get("host_key") != before["host_key"] || worker.Get("private_ip") != before["private_ip"] {
		t.Error("the machine was replaced")
	}
	if said := c.Instance("k8s_machine").Plan(providertest.With(off, providertest.Values{"name": "worker-1"})).Failure(); !strings.Contains(said, "A machine is created running") {
		t.Errorf("a new one that is stopped: %q", said)
	}
}

// TestStartInterrupted: an apply was killed after EC2 had accepted the start. The next one waits until
// the machine runs, and asks EC2 again for what it got.
func TestStartInterrupted(t *testing.T) {
	t.Parallel()
	c := providertest.NewCloud(t)
	network, worker := c.Instance("k8s_network"), c.Instance("k8s_machine")
	network.Must(providertest.NetworkConfig())
	config := providertest.WorkerConfig(network)
	worker.Must(config)
	id, _ := worker.Get("id").(string)
	for seconds := 2.0; worker.Get("instance_state") != "pending"; seconds *= 2 { // the refresh may come too late
		if seconds > 100 {
			t.Fatalf("it is %v", worker.Get("instance_state"))
		}
		worker.Must(providertest.With(config, providertest.Values{"power_state": reference.Stopped}))
		c.Account.Calm()
		c.Account.Fault(fault.Fault{Kind: fault.SlowStart, Seconds: seconds})
		providertest.Answer[*ec2.StartInstancesOutput](t)(c.Client.EC2.StartInstances(t.Context(), &ec2.StartInstancesInput{InstanceIds: []string{id}}))
		worker.Refresh()
	}
	worker.Must(config)
	if state := worker.Get("instance_state"); state != reference.Running {
		t.Errorf("it is %v", state)
	}
	worker.Converged(config)
}

// TestPausedNetwork: before the first machine of a paused cluster stops, all of them are asked what
// they do, once, whatever Terraform does first. Afterwards nothing is asked, and a machine that is
// to run, or a new one, is refused.
func TestPausedNetwork(t *testing.T) {
	t.Parallel()
	c := providertest.NewCloud(t)
	network := c.Instance("k8s_network")
	network.Must(providertest.NetworkConfig())
	configs := func() []providertest.Values {
		ref := network.Get("ref")
		return []providertest.Values{
			{"name": "controller-0", "role": "controller", "network": ref, "private_ip": "10.240.0.10"},
			{"name": "controller-1", "role": "controller", "network": ref, "private_ip": "10.240.0.11"},
			{"name": "worker-0", "role": "worker", "network": ref, "private_ip": "10.240.0.20"},
			{"name": "lb-0", "role": "lb", "network": ref, "private_ip": "10.240.0.30"},
		}
	}
	var machines []*providertest.Instance
	for _, config := range configs() {
		m := c.Instance("k8s_machine")
		m.Must(config)
		m.Converged(config)
		machines = append(machines, m)
	}
	idle := *c.Duty
	var mu sync.Mutex
	var asked []string
	away := "worker-0"
	*c.Duty = func(ctx context.Context, to fleet.Target) (*maintenance.Duty, error) {
		mu.Lock()
		defer mu.Unlock()
		if n := of(c.Calls(), "StopInstances"); n > 0 {
			t.Errorf("%s was asked after %d machines were stopped", to.Name(), n)
		}
		if asked = append(asked, to.Name()); to.Name() == away {
			return nil, &remote.UnreachableError{Machine: away, Err: errors.New("no route to host")}
		}
		return idle(ctx, to)
	}

	on, off := providertest.NetworkConfig(), providertest.With(providertest.NetworkConfig(), providertest.Values{"paused": true})
	network.Must(off)
	network.Converged(off)
	now := configs()
	if said := machines[0].CarryOut(machines[0].Plan(now[0])).Failure(); !strings.Contains(said, "refusing to pause the cluster: it is not known what runs on worker-0") {
		t.Fatalf("a worker does not answer: %q", said)
	}
	if n := of(c.Calls(), "StopInstances"); n > 0 {
		t.Fatalf("%d machines were stopped", n)
	}
	away, asked = "", nil
	for n, m := range machines { // one at a time, the controllers first
		m.Must(now[n])
	}
	slices.Sort(asked)
	if !slices.Equal(asked, []string{"controller-0", "controller-1", "worker-0"}) {
		t.Errorf("asked %q", asked)
	}
	calls := len(c.Calls())
	for n, m := range machines {
		m.Converged(now[n])
		if host, _ := m.Get("host").(providertest.Values); m.Get("power_state") != reference.Stopped || host["power_state"] != reference.Paused {
			t.Errorf("%v is %v, its host %v", m.Get("name"), m.Get("power_state"), host["power_state"])
		}
	}
	for _, call := range c.Calls()[calls:] {
		if !strings.HasPrefix(call, "Describe") && call != "GetCallerIdentity" {
			t.Errorf("the refresh of a paused machine calls %s", call)
		}
	}
	for want, config := range map[string]providertest.Values{
		"so worker-0 cannot run: remove power_state": providertest.With(now[2], providertest.Values{"power_state": reference.Running}),
		"": providertest.With(now[2], providertest.Values{"power_state": reference.Stopped}),
	} {
		if said := machines[2].Plan(config).Failure(); (said == "") != (want == "") || !strings.Contains(said, want) {
			t.Errorf("power_state %v: %q", config["power_state"], said)
		}
	}
	if said := c.Instance("k8s_machine").Plan(providertest.With(now[2], providertest.Values{"name": "worker-1", "private_ip": "10.240.0.21"})).Failure(); !strings.Contains(said, "resume the cluster first") {
		t.Errorf("a new machine: %q", said)
	}

	network.Must(on)
	now = configs()
	var wait sync.WaitGroup
	for n, m := range machines {
		planned := m.Plan(now[n])
		wait.Go(func() { c.Fatal(m.Apply(planned)) })
	}
	wait.Wait()
	for n, m := range machines {
		m.Converged(now[n])
		if host, _ := m.Get("host").(providertest.Values); m.Get("instance_state") != reference.Running || host["power_state"] != reference.Running {
			t.Errorf("%v is %v, its host %v", m.Get("name"), m.Get("instance_state"), host["power_state"])
		}
	}
	if of(c.Calls(), "StartInstances") != len(machines) || len(asked) != 3 {
		t.Errorf("%d starts; asked %q", of(c.Calls(), "StartInstances"), asked)
	}
}
