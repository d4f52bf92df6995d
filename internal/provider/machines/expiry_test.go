package machines_test

import (
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/service/ec2"
	"github.com/aws/aws-sdk-go-v2/service/ec2/types"

	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/expiry"
	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/remote"
	"github.com/k8s-from-scratch/terraform-provider-k8s/internal/provider/providertest"
	"github.com/k8s-from-scratch/terraform-provider-k8s/internal/provider/reference"
)

// movable returns an account whose provider has a clock that the test moves.
func movable(t *testing.T) (c providertest.Cloud, pass func(time.Duration)) {
	t.Helper()
	var passed atomic.Int64
	c = providertest.NewCloud(t)
	c.Now = func() time.Time { return time.Now().Add(time.Duration(passed.Load())) }
	return c.Process(t), func(d time.Duration) { passed.Add(int64(d)) }
}

// in returns the time in d as expires_at.
func in(d time.Duration) string { return time.Now().Add(d).UTC().Format(time.RFC3339) }

func expiring(at any) providertest.Values {
	return providertest.With(providertest.NetworkConfig(), providertest.Values{"expires_at": at})
}

// TestExpiryTimer: each machine has the timer from its first boot on. It is changed in place, without anything else, repaired
// when somebody has deleted it, and taken away.
func TestExpiryTimer(t *testing.T) {
	t.Parallel()
	c, _ := movable(t)
	network, worker := c.Instance("k8s_network"), c.Instance("k8s_machine")
	first, second := in(time.Hour), in(2*time.Hour)
	network.Must(expiring(first))
	network.Converged(expiring(first))
	worker.Must(providertest.WorkerConfig(network))
	worker.Converged(providertest.WorkerConfig(network))
	id, _ := worker.Get("id").(string)
	if data := c.UserData(worker); !strings.Contains(data, "OnCalendar="+strings.NewReplacer("T", " ", "Z", "").Replace(first)+" UTC") {
		t.Errorf("launched with %s", data)
	}
	root := c.Machines.Root(id)
	unit := filepath.Join(root, "etc/systemd/system", expiry.Timer)
	calls := func() string {
		raw, _ := os.ReadFile(filepath.Join(root, "units/calls"))
		_ = os.Remove(filepath.Join(root, "units/calls"))
		return string(raw)
	}
	set := func(at string) {
		t.Helper()
		raw, err := os.ReadFile(unit)
		if err != nil || !strings.Contains(string(raw), "OnCalendar="+strings.NewReplacer("T", " ", "Z", "").Replace(at)+" UTC") {
			t.Errorf("%v: %s", err, raw)
		}
	}
	set(first)
	calls()

	network.Must(expiring(second))
	ch := worker.Plan(providertest.WorkerConfig(network))
	if ch.Failure() != "" || len(ch.Replace) > 0 || !strings.Contains(worker.Differences(ch), "expires_at") || strings.Contains(worker.Differences(ch), "public_ip") {
		t.Errorf("%s, replaces because of %v:\n%s", ch.Failure(), ch.Replace, worker.Differences(ch))
	}
	c.Fatal(worker.Apply(ch))
	set(second)
	if made := calls(); !strings.Contains(made, "restart "+expiry.Timer) || strings.Contains(made, expiry.Service) {
		t.Errorf("a later time calls %q", made)
	}
	worker.Converged(providertest.WorkerConfig(network))

	for _, name := range []string{expiry.Timer, expiry.Service} {
		if err := os.Remove(filepath.Join(root, "etc/systemd/system", name)); err != nil {
			t.Fatal(err)
		}
		worker.Refresh()
		if drift, _ := worker.Get("drift").(providertest.Values); !strings.Contains(flat(drift["worker-0"].(string)), name) { //nolint:forcetypeassert // a string or a panic
			t.Errorf("without %s: %v", name, drift)
		}
		worker.Must(providertest.WorkerConfig(network))
		worker.Converged(providertest.WorkerConfig(network))
	}
	set(second)

	imported := c.Instance("k8s_machine")
	imported.Imports(id)
	imported.Must(providertest.WorkerConfig(network))
	imported.Converged(providertest.WorkerConfig(network))

	lost := c.Instance("k8s_machine") // whoever imports it does not know of the time
	lost.Imports(id)
	timeless := providertest.With(providertest.WorkerConfig(network), providertest.Values{
		"network": providertest.With(network.Get("ref").(providertest.Values), providertest.Values{"expires_at": nil})}) //nolint:forcetypeassert // an object or a panic
	lost.Refresh()
	lost.Must(timeless)
	if _, err := os.Stat(unit); err == nil {
		t.Error("the timer of an imported machine stays")
	}
	lost.Converged(timeless)

	network.Must(providertest.NetworkConfig())
	worker.Must(providertest.WorkerConfig(network))
	if _, err := os.Stat(unit); err == nil {
		t.Error("the timer stays")
	}
	worker.Converged(providertest.WorkerConfig(network))
	if n := of(c.Calls(), "StopInstances") + of(c.Calls(), "RebootInstances"); n > 0 {
		t.Errorf("%d stops", n)
	}
}

// TestExpiredMachine: a machine of a cluster that has expired counts as paused, and not as different. The apply stops one that still
// runs. A later time starts it again, with another timer.
func TestExpiredMachine(t *testing.T) {
	t.Parallel()
	c, pass := movable(t)
	network := c.Instance("k8s_network")
	network.Must(expiring(in(time.Hour)))
	expires := expiring(network.Get("expires_at"))
	configs := func() []providertest.Values {
		return []providertest.Values{
			providertest.WorkerConfig(network),
			{"name": "lb-0", "role": "lb", "network": network.Get("ref"), "private_ip": "10.240.0.30"},
		}
	}
	machines := []*providertest.Instance{c.Instance("k8s_machine"), c.Instance("k8s_machine")}
	for n, m := range machines {
		m.Must(configs()[n])
	}
	pass(2 * time.Hour)
	c.Stop(t, machines[0]) // the other one is late
	network.Refresh()
	ch := network.Plan(expires)
	if !network.Empty(ch) || network.Get("expired") != true || len(ch.Warnings) != 1 || !strings.Contains(ch.Warnings[0].Detail, "has passed, so the machines of cluster demo power themselves off") {
		t.Errorf("the network: %v\n%s", ch.Warnings, network.Differences(ch))
	}
	for n, m := range machines {
		m.Refresh()
		host, _ := m.Get("host").(providertest.Values)
		if drift, _ := m.Get("drift").(providertest.Values); len(drift) > 0 || m.Get("power_state") != reference.Stopped || host["power_state"] != reference.Paused {
			t.Errorf("%v: drift %v, power %v, host %v", m.Get("name"), drift, m.Get("power_state"), host["power_state"])
		}
		ch := m.Plan(configs()[n])
		if n == 0 && !m.Empty(ch) || n == 1 && (m.Empty(ch) || !strings.Contains(m.Differences(ch), "instance_state")) {
			t.Errorf("%v: %s\n%s", m.Get("name"), ch.Failure(), m.Differences(ch))
		}
	}
	machines[1].Must(configs()[1])
	if n := of(c.Calls(), "StopInstances"); n != 1 {
		t.Errorf("%d stops", n)
	}
	for n, m := range machines {
		m.Converged(configs()[n])
	}
	providertest.Answer[*ec2.StartInstancesOutput](t)(c.Client.EC2.StartInstances(t.Context(), &ec2.StartInstancesInput{InstanceIds: []string{machines[1].Get("id").(string)}})) //nolint:forcetypeassert // a string or a panic
	machines[1].Refresh()
	if drift, _ := machines[1].Get("drift").(providertest.Values); !strings.Contains(drift["lb-0"].(string), "wanted stopped") { //nolint:forcetypeassert // a string or a panic
		t.Errorf("started by somebody else: %v", drift)
	}
	machines[1].Must(configs()[1])

	for want, more := range map[string]providertest.Values{
		"so worker-0 cannot run: remove power_state, or resume the cluster (a later expires_at, or none)": {"power_state": reference.Running},
		"has passed: resume the cluster first, with a later expires_at, or none":                          {"name": "worker-1", "private_ip": "10.240.0.21"},
	} {
		m := machines[0]
		if more["name"] != nil {
			m = c.Instance("k8s_machine")
		}
		if said := flat(m.Plan(providertest.With(configs()[0], more)).Failure()); !strings.Contains(said, want) {
			t.Errorf("%v: %q", more, said)
		}
	}

	later := expiring(in(4 * time.Hour))
	network.Must(later)
	network.Converged(later)
	for n, m := range machines {
		m.Must(configs()[n])
		m.Converged(configs()[n])
		if i := c.Found(t, m); i.State.Name != types.InstanceStateNameRunning {
			t.Errorf("%v is %s", m.Get("name"), i.State.Name)
		}
	}
}

// TestExpiredVolume: what only refers to the network of a cluster that has expired shows no difference either.
func TestExpiredVolume(t *testing.T) {
	t.Parallel()
	now := time.Now()
	c := providertest.NewImageCloud(t)
	c.Now = func() time.Time { return now }
	c = c.Process(t)
	network, volume, image := c.Instance("k8s_network"), c.Instance("k8s_volume"), c.Instance("k8s_image")
	network.Must(expiring(in(time.Hour)))
	volume.Must(providertest.VolumeConfig(network))
	image.Must(providertest.ImageConfig(network))
	now = now.Add(2 * time.Hour)
	network.Refresh()
	volume.Converged(providertest.VolumeConfig(network))
	image.Converged(providertest.ImageConfig(network))
}

// TestExpiredSincePlan: nothing is launched, changed or started after the time, for the timer would not fire any more.
func TestExpiredSincePlan(t *testing.T) {
	t.Parallel()
	c, pass := movable(t)
	network, worker, late := c.Instance("k8s_network"), c.Instance("k8s_machine"), c.Instance("k8s_machine")
	network.Must(expiring(in(time.Hour)))
	worker.Must(providertest.WorkerConfig(network))
	pass(2 * time.Hour)
	before := len(c.Calls())
	for m, more := range map[*providertest.Instance]providertest.Values{
		worker: {"tags": providertest.Values{"room": "12"}},
		late:   {"name": "worker-1", "private_ip": "10.240.0.21"},
	} {
		if said := flat(m.Attempt(providertest.With(providertest.WorkerConfig(network), more))); !strings.Contains(said, "has passed since the plan: plan again") {
			t.Errorf("%v: %q", more, said)
		}
	}
	if after := c.Calls()[before:]; of(after, "RunInstances")+of(after, "CreateTags") > 0 {
		t.Errorf("it calls %v", after)
	}
	worker.Refresh()
	if ch := worker.Plan(providertest.WorkerConfig(network)); !strings.Contains(flat(ch.Failure()), "has expired since the network was refreshed. Plan again.") || !at(ch, "network") {
		t.Errorf("refreshed after the network: %q", ch.Failure())
	}
	network.Refresh()
	if ch := worker.Plan(providertest.WorkerConfig(network)); ch.Failure() != "" || !strings.Contains(worker.Differences(ch), "stopped") {
		t.Errorf("refreshed again: %s\n%s", ch.Failure(), worker.Differences(ch))
	}
}

// TestExpiryOfUnreachable: a new machine that is lost once it is up is not tainted. The next apply gives it the timer.
func TestExpiryOfUnreachable(t *testing.T) {
	t.Parallel()
	var connections atomic.Int64
	c := providertest.NewCloud(t)
	c.Dead = func(remote.Host) bool { return connections.Add(1) == 4 } // three bring it up
	c = c.Process(t)
	network, worker := c.Instance("k8s_network"), c.Instance("k8s_machine")
	network.Must(expiring(in(time.Hour)))
	said := worker.CarryOut(worker.Plan(providertest.WorkerConfig(network)))
	if len(said.Errors) > 0 || !strings.Contains(flat(providertest.Change{Errors: said.Warnings}.Failure()), "its apply repairs it") {
		t.Errorf("%v, %v", said.Errors, said.Warnings)
	}
	worker.Refresh()
	if drift, _ := worker.Get("drift").(providertest.Values); len(drift) == 0 {
		t.Error("no drift")
	}
	worker.Must(providertest.WorkerConfig(network))
	worker.Converged(providertest.WorkerConfig(network))
}

// TestExpiryWithLongUserData: a machine whose user data leave no room for the timer gets it over SSH.
func TestExpiryWithLongUserData(t *testing.T) {
	t.Parallel()
	c, _ := movable(t)
	network, worker := c.Instance("k8s_network"), c.Instance("k8s_machine")
	network.Must(expiring(in(time.Hour)))
	config := providertest.With(providertest.WorkerConfig(network), providertest.Values{"user_data": "#!" + strings.Repeat("x", 14<<10)})
	planned := worker.Plan(config)
	c.Fatal(planned.Errors)
	if said := worker.CarryOut(planned); len(said.Errors) > 0 || !strings.Contains(flat(providertest.Change{Errors: said.Warnings}.Failure()), "gets the timer of its expires_at over SSH") {
		t.Errorf("%v, %v", said.Errors, said.Warnings)
	}
	worker.Converged(config)
}

// TestExpiryWhilePaused: what changes while a machine is stopped takes effect when it starts.
func TestExpiryWhilePaused(t *testing.T) {
	t.Parallel()
	c, _ := movable(t)
	network, worker := c.Instance("k8s_network"), c.Instance("k8s_machine")
	network.Must(expiring(in(time.Hour)))
	worker.Must(providertest.WorkerConfig(network))
	unit := filepath.Join(c.Machines.Root(worker.Get("id").(string)), "etc/systemd/system", expiry.Timer) //nolint:forcetypeassert // a string or a panic
	network.Must(providertest.With(providertest.NetworkConfig(), providertest.Values{"paused": true}))
	worker.Must(providertest.WorkerConfig(network))
	worker.Converged(providertest.WorkerConfig(network))
	if _, err := os.Stat(unit); err != nil {
		t.Fatal(err)
	}
	network.Must(providertest.NetworkConfig())
	worker.Must(providertest.WorkerConfig(network))
	if _, err := os.Stat(unit); err == nil {
		t.Error("the machine would power itself off")
	}
	worker.Converged(providertest.WorkerConfig(network))
}

// TestExpiringSpotMachine: a Spot machine ends when it is powered off, so its cluster cannot expire.
func TestExpiringSpotMachine(t *testing.T) {
	t.Parallel()
	c, _ := movable(t)
	network := c.Instance("k8s_network")
	network.Must(expiring(in(time.Hour)))
	config := providertest.With(providertest.WorkerConfig(network), providertest.Values{"spot": providertest.Values{}})
	if ch := c.Instance("k8s_machine").Plan(config); !strings.Contains(flat(ch.Failure()), "k8s_network has expires_at, at which machines power themselves off, and worker-0 is a Spot instance") || !at(ch, "network") {
		t.Errorf("%q", ch.Failure())
	}
}

// TestShutdownBehavior: an instance that powers itself off is stopped, and not ended.
func TestShutdownBehavior(t *testing.T) {
	t.Parallel()
	c := providertest.NewCloud(t)
	network, worker := c.Instance("k8s_network"), c.Instance("k8s_machine")
	network.Must(providertest.NetworkConfig())
	worker.Must(providertest.WorkerConfig(network))
	id, _ := worker.Get("id").(string)
	out := providertest.Answer[*ec2.DescribeInstanceAttributeOutput](t)(c.Client.EC2.DescribeInstanceAttribute(t.Context(), &ec2.DescribeInstanceAttributeInput{
		InstanceId: &id, Attribute: types.InstanceAttributeNameInstanceInitiatedShutdownBehavior}))
	if got := *out.InstanceInitiatedShutdownBehavior.Value; got != "stop" {
		t.Errorf("it is %s", got)
	}
}
