package machines_test

import (
	"strings"
	"testing"

	"github.com/k8s-from-scratch/terraform-provider-k8s/internal/provider/providertest"
)

// TestScheduledEvents: a refresh warns of what EC2 has scheduled for a machine and of nothing that is over, with one call for
// all machines, and says that it does not know if it may not ask.
func TestScheduledEvents(t *testing.T) {
	t.Parallel()
	c := providertest.NewCloud(t)
	network, worker, other := c.Instance("k8s_network"), c.Instance("k8s_machine"), c.Instance("k8s_machine")
	network.Must(providertest.NetworkConfig())
	config := providertest.WorkerConfig(network)
	worker.Must(config)
	other.Must(providertest.With(config, providertest.Values{"name": "worker-1", "private_ip": "10.240.0.21", "pod_cidr": "10.200.1.0/24"}))
	id := *c.Found(t, worker).InstanceId
	c.Account.Schedule(id, "instance-retirement", 3600)
	c.Account.Schedule(*c.Found(t, other).InstanceId, "system-reboot", 3600)

	worker.Look() // settles the claims
	other.Look()
	c.Account.ForgetCalls()
	for m, want := range map[*providertest.Instance]string{
		worker: "EC2 will stop worker-0: EC2 has scheduled instance-retirement of instance " + id + ", not before 20",
		other:  "EC2 will reboot worker-1: EC2 has scheduled system-reboot of instance ",
	} {
		said := flat(providertest.Warnings(m.Look()))
		if !strings.Contains(said, want) || !strings.Contains(said, "apply once with power_state") || strings.Contains(said, "starts it again") != (m == worker) {
			t.Errorf("the refresh says %q, want %q", said, want)
		}
	}
	if calls := c.Account.Calls(); calls["DescribeInstanceStatus"] != 1 {
		t.Errorf("calls: %v", calls)
	}

	stopped := providertest.With(config, providertest.Values{"power_state": "stopped"})
	worker.Must(stopped)
	worker.Must(config)
	if said := providertest.Warnings(worker.Look()); said != "" {
		t.Errorf("after the stop: %q", said)
	}

	everyday, destroy := providertest.ReadPolicy(t, "everyday.json"), providertest.ReadPolicy(t, "destroy.json").Without("")
	r := providertest.NewRestricted(t, everyday.Without("ec2:DescribeInstanceStatus"), destroy)
	network, worker = r.Instance("k8s_network"), r.Instance("k8s_machine")
	network.Must(providertest.NetworkConfig())
	worker.Must(providertest.WorkerConfig(network))
	if said := flat(providertest.Warnings(worker.Look())); !strings.Contains(said, "What EC2 has scheduled for worker-0 is not known") || !strings.Contains(said, "ec2:DescribeInstanceStatus") {
		t.Errorf("without the permission: %q", said)
	}
}
