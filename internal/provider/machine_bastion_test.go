package provider

import (
	"context"
	"errors"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/aws/aws-sdk-go-v2/service/ec2"

	awsmachine "github.com/k8s-from-scratch/terraform-provider-k8s/infra/aws/machine"
	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/fleet"
	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/maintenance"
	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/remote"
	"github.com/k8s-from-scratch/terraform-provider-k8s/internal/provider/reference"
)

// TestPausedBastion: a bastion that is a machine of the cluster stops last and starts first, in
// whatever order Terraform goes through the machines. An apply that finds it stopped while others run
// says what to do, and so does one that finds it at another address.
func TestPausedBastion(t *testing.T) {
	t.Parallel()
	c := newCloud(t)
	network := c.instance("k8s_network")
	network.must(networkConfig())
	configs := func() []values {
		ref := network.get("ref")
		return []values{
			{"name": "lb-0", "role": "lb", "network": ref, "private_ip": "10.240.0.30"},
			{"name": "worker-0", "role": "worker", "network": ref, "private_ip": "10.240.0.20"},
			{"name": "worker-1", "role": "worker", "network": ref, "private_ip": "10.240.0.21"},
		}
	}
	var machines []*instance
	for _, config := range configs() {
		m := c.instance("k8s_machine")
		m.must(config)
		machines = append(machines, m)
	}
	id := func(n int) string { return machines[n].get("id").(string) } //nolint:forcetypeassert // EC2 gives one
	state := func(n int) string {
		now, err := awsmachine.Describe(t.Context(), c.client, id(n))
		if err != nil {
			t.Fatal(err)
		}
		return now.State
	}
	elastic := answer[*ec2.AllocateAddressOutput](t)(c.client.EC2.AllocateAddress(t.Context(), &ec2.AllocateAddressInput{}))
	lb := id(0)
	answer[*ec2.AssociateAddressOutput](t)(c.client.EC2.AssociateAddress(t.Context(), &ec2.AssociateAddressInput{InstanceId: &lb, AllocationId: elastic.AllocationId}))

	released := false // the bastion's address
	behind := func(address string) {
		c.dead = func(h remote.Host) bool { return released && h.Bastion != nil }
		c.reached = func(h remote.Host) {
			if h.Bastion != nil && state(0) != reference.Running {
				t.Errorf("%s is looked for while the bastion is %s", h.Name, state(0))
			}
		}
		c.ssh = values{"private_key": c.key, "bastion": values{"address": address, "host_keys": []any{machines[0].get("host_key").(string) + " a comment"}}} //nolint:forcetypeassert // text
		c = c.process(t)
		network = c.taken(network)
		for n, m := range machines {
			machines[n] = c.taken(m)
		}
	}
	behind(*elastic.PublicIp)
	for n := range machines {
		machines[n].refresh()
	}
	var asked atomic.Int32
	idle := *c.duty
	*c.duty = func(ctx context.Context, to fleet.Target) (*maintenance.Duty, error) {
		if asked.Add(1); state(0) != reference.Running {
			t.Errorf("%s is asked while the bastion is %s", to.Name(), state(0))
		}
		return idle(ctx, to)
	}
	on, off := networkConfig(), with(networkConfig(), values{"paused": true})
	network.must(off)

	// Somebody has stopped the bastion.
	c.stop(t, machines[0])
	said := machines[1].carryOut(machines[1].plan(configs()[1])).failure()
	mention(t, said, "refusing to pause the cluster: lb-0 is the bastion of the cluster, and its instance "+lb+" is stopped; start that instance and apply again")
	if asked.Load() > 0 || state(1) != reference.Running {
		t.Errorf("asked %d, worker-0 is %s", asked.Load(), state(1))
	}
	if _, err := awsmachine.Start(t.Context(), c.client, awsmachine.Machine{ID: lb, State: reference.Stopped}); err != nil {
		t.Fatal(err)
	}

	// Terraform stops the bastion first: the others go before it.
	behind(*elastic.PublicIp)
	machines[0].must(configs()[0])
	for n := range machines {
		if s := state(n); n > 0 && s != reference.Stopped && s != "stopping" || n == 0 && s != reference.Stopped {
			t.Errorf("machine %d is %s", n, s)
		}
	}
	if stops := c.calls(); of(stops, "StopInstances") != 2 {
		t.Errorf("calls %q", stops)
	}
	if asked.Load() != 2 {
		t.Errorf("asked %d", asked.Load())
	}
	for n, m := range machines {
		m.must(configs()[n])
		m.settled(configs()[n])
	}

	// Terraform starts it last: it is started before the others are waited for.
	network.must(on)
	for _, n := range []int{2, 1, 0} {
		machines[n].must(configs()[n])
	}
	for n, m := range machines {
		m.settled(configs()[n])
	}

	// Its address is another one when it starts again.
	network.must(off)
	for n, m := range machines {
		m.must(configs()[n])
	}
	answer[*ec2.ReleaseAddressOutput](t)(c.client.EC2.ReleaseAddress(t.Context(), release(t, c, elastic)))
	released = true
	network.must(on)
	said = machines[1].carryOut(machines[1].plan(configs()[1])).failure()
	mention(t, said, "refusing to wait for worker-0: the bastion lb-0 has another address since it was started", "write the present one into ssh.bastion.address")
	if !strings.Contains(said, *elastic.PublicIp) {
		t.Errorf("the address of before is not mentioned: %s", said)
	}
}

// TestPausedWithoutBastion: a provider that knows no bastion cannot ask machines that have no public
// address, and says how it can.
func TestPausedWithoutBastion(t *testing.T) {
	t.Parallel()
	c := newCloud(t)
	c.ssh = values{"private_key": c.key, "bastion": values{"address": "192.0.2.1", "host_keys": []any{publicKey(t)}}}
	behind := c.process(t)
	network, worker := behind.instance("k8s_network"), behind.instance("k8s_machine")
	network.must(networkConfig())
	worker.must(with(workerConfig(network), values{"associate_public_ip_address": false}))
	c.ssh = nil
	direct := c.process(t)
	lb := direct.instance("k8s_machine")
	config := func() values {
		return values{"name": "lb-0", "role": "lb", "network": network.get("ref"), "private_ip": "10.240.0.30"}
	}
	lb.must(config())
	*c.duty = func(_ context.Context, to fleet.Target) (*maintenance.Duty, error) {
		return nil, &remote.UnreachableError{Machine: to.Name(), Err: errors.New("no route to host")}
	}
	network.must(with(networkConfig(), values{"paused": true}))
	mention(t, lb.carryOut(lb.plan(config())).failure(), "refusing to pause the cluster", "lb-0 has a provider configuration without ssh.bastion", "as text, and apply again")
	if lb.get("instance_state") != reference.Running {
		t.Errorf("lb-0 is %v", lb.get("instance_state"))
	}
}

// release takes an Elastic IP from its machine.
func release(t *testing.T, c cloud, elastic *ec2.AllocateAddressOutput) *ec2.ReleaseAddressInput {
	t.Helper()
	found := answer[*ec2.DescribeAddressesOutput](t)(c.client.EC2.DescribeAddresses(t.Context(), &ec2.DescribeAddressesInput{AllocationIds: []string{*elastic.AllocationId}}))
	answer[*ec2.DisassociateAddressOutput](t)(c.client.EC2.DisassociateAddress(t.Context(), &ec2.DisassociateAddressInput{AssociationId: found.Addresses[0].AssociationId}))
	return &ec2.ReleaseAddressInput{AllocationId: elastic.AllocationId}
}
