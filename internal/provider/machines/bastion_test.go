package machines_test

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
	"github.com/k8s-from-scratch/terraform-provider-k8s/internal/provider/providertest"
	"github.com/k8s-from-scratch/terraform-provider-k8s/internal/provider/reference"
)

// TestPausedBastion: a bastion that is a machine of the cluster stops last and starts first, in
// whatever order Terraform goes through the machines. An apply that finds it stopped while others run
// says what to do, and so does one that finds it at another address.
func TestPausedBastion(t *testing.T) {
	t.Parallel()
	c := providertest.NewCloud(t)
	network := c.Instance("k8s_network")
	network.Must(providertest.NetworkConfig())
	configs := func() []providertest.Values {
		ref := network.Get("ref")
		return []providertest.Values{
			{"name": "lb-0", "role": "lb", "network": ref, "private_ip": "10.240.0.30"},
			{"name": "worker-0", "role": "worker", "network": ref, "private_ip": "10.240.0.20"},
			{"name": "worker-1", "role": "worker", "network": ref, "private_ip": "10.240.0.21"},
		}
	}
	var machines []*providertest.Instance
	for _, config := range configs() {
		m := c.Instance("k8s_machine")
		m.Must(config)
		machines = append(machines, m)
	}
	id := func(n int) string { return machines[n].Get("id").(string) } //nolint:forcetypeassert // EC2 gives one
	state := func(n int) string {
		now, err := awsmachine.Describe(t.Context(), c.Client, id(n))
		if err != nil {
			t.Fatal(err)
		}
		return now.State
	}
	elastic := providertest.Answer[*ec2.AllocateAddressOutput](t)(c.Client.EC2.AllocateAddress(t.Context(), &ec2.AllocateAddressInput{}))
	lb := id(0)
	providertest.Answer[*ec2.AssociateAddressOutput](t)(c.Client.EC2.AssociateAddress(t.Context(), &ec2.AssociateAddressInput{InstanceId: &lb, AllocationId: elastic.AllocationId}))

	released := false // the bastion's address
	behind := func(address string) {
		c.Dead = func(h remote.Host) bool { return released && h.Bastion != nil }
		c.Reached = func(h remote.Host) {
			if h.Bastion != nil && state(0) != reference.Running {
				t.Errorf("%s is looked for while the bastion is %s", h.Name, state(0))
			}
		}
		c.SSH = providertest.Values{"private_key": c.Key, "bastion": providertest.Values{"address": address, "host_keys": []any{machines[0].Get("host_key").(string) + " a comment"}}} //nolint:forcetypeassert // text
		c = c.Process(t)
		network = c.Taken(network)
		for n, m := range machines {
			machines[n] = c.Taken(m)
		}
	}
	behind(*elastic.PublicIp)
	for n := range machines {
		machines[n].Refresh()
	}
	var asked atomic.Int32
	idle := *c.Duty
	*c.Duty = func(ctx context.Context, to fleet.Target) (*maintenance.Duty, error) {
		if asked.Add(1); state(0) != reference.Running {
			t.Errorf("%s is asked while the bastion is %s", to.Name(), state(0))
		}
		return idle(ctx, to)
	}
	on, off := providertest.NetworkConfig(), providertest.With(providertest.NetworkConfig(), providertest.Values{"paused": true})
	network.Must(off)

	// Somebody has stopped the bastion.
	c.Stop(t, machines[0])
	said := machines[1].CarryOut(machines[1].Plan(configs()[1])).Failure()
	providertest.Mention(t, said, "refusing to pause the cluster: lb-0 is the bastion of the cluster, and its instance "+lb+" is stopped; start that instance and apply again")
	if asked.Load() > 0 || state(1) != reference.Running {
		t.Errorf("asked %d, worker-0 is %s", asked.Load(), state(1))
	}
	if _, err := awsmachine.Start(t.Context(), c.Client, awsmachine.Machine{ID: lb, State: reference.Stopped}); err != nil {
		t.Fatal(err)
	}

	// Terraform begins with the bastion, and yet the others stop before it.
	behind(*elastic.PublicIp)
	machines[0].Must(configs()[0])
	for n := range machines {
		if s := state(n); n > 0 && s != reference.Stopped && s != "stopping" || n == 0 && s != reference.Stopped {
			t.Errorf("machine %d is %s", n, s)
		}
	}
	if stops := c.Calls(); of(stops, "StopInstances") != 2 {
		t.Errorf("calls %q", stops)
	}
	if asked.Load() != 2 {
		t.Errorf("asked %d", asked.Load())
	}
	for n, m := range machines {
		m.Must(configs()[n])
		m.Converged(configs()[n])
	}

	// Terraform ends with the bastion, and yet it is started before anything waits for the others.
	network.Must(on)
	for _, n := range []int{2, 1, 0} {
		machines[n].Must(configs()[n])
	}
	for n, m := range machines {
		m.Converged(configs()[n])
	}

	// It has another address when it starts again.
	network.Must(off)
	for n, m := range machines {
		m.Must(configs()[n])
	}
	providertest.Answer[*ec2.ReleaseAddressOutput](t)(c.Client.EC2.ReleaseAddress(t.Context(), release(t, c, elastic)))
	released = true
	network.Must(on)
	said = machines[1].CarryOut(machines[1].Plan(configs()[1])).Failure()
	providertest.Mention(t, said, "refusing to wait for worker-0: the bastion lb-0 has another address since it was started", "write the present one into ssh.bastion.address")
	if !strings.Contains(said, *elastic.PublicIp) {
		t.Errorf("the address of before is not mentioned: %s", said)
	}
}

// TestPausedWithoutBastion: a provider that knows no bastion cannot ask machines that have no
// public address, and says what would let it.
func TestPausedWithoutBastion(t *testing.T) {
	t.Parallel()
	c := providertest.NewCloud(t)
	c.SSH = providertest.Values{"private_key": c.Key, "bastion": providertest.Values{"address": "192.0.2.1", "host_keys": []any{providertest.PublicKey(t)}}}
	behind := c.Process(t)
	network, worker := behind.Instance("k8s_network"), behind.Instance("k8s_machine")
	network.Must(providertest.NetworkConfig())
	worker.Must(providertest.With(providertest.WorkerConfig(network), providertest.Values{"associate_public_ip_address": false}))
	c.SSH = nil
	direct := c.Process(t)
	lb := direct.Instance("k8s_machine")
	config := func() providertest.Values {
		return providertest.Values{"name": "lb-0", "role": "lb", "network": network.Get("ref"), "private_ip": "10.240.0.30"}
	}
	lb.Must(config())
	*c.Duty = func(_ context.Context, to fleet.Target) (*maintenance.Duty, error) {
		return nil, &remote.UnreachableError{Machine: to.Name(), Err: errors.New("no route to host")}
	}
	network.Must(providertest.With(providertest.NetworkConfig(), providertest.Values{"paused": true}))
	providertest.Mention(t, lb.CarryOut(lb.Plan(config())).Failure(), "refusing to pause the cluster", "lb-0 has a provider configuration without ssh.bastion", "as text, and apply again")
	if lb.Get("instance_state") != reference.Running {
		t.Errorf("lb-0 is %v", lb.Get("instance_state"))
	}
}

// release takes an Elastic IP from its machine.
func release(t *testing.T, c providertest.Cloud, elastic *ec2.AllocateAddressOutput) *ec2.ReleaseAddressInput {
	t.Helper()
	found := providertest.Answer[*ec2.DescribeAddressesOutput](t)(c.Client.EC2.DescribeAddresses(t.Context(), &ec2.DescribeAddressesInput{AllocationIds: []string{*elastic.AllocationId}}))
	providertest.Answer[*ec2.DisassociateAddressOutput](t)(c.Client.EC2.DisassociateAddress(t.Context(), &ec2.DisassociateAddressInput{AssociationId: found.Addresses[0].AssociationId}))
	return &ec2.ReleaseAddressInput{AllocationId: elastic.AllocationId}
}
