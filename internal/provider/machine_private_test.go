package provider

import (
	"context"
	"slices"
	"sync/atomic"
	"testing"

	"github.com/aws/aws-sdk-go-v2/service/ec2"

	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/fleet"
	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/maintenance"
	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/remote"
)

// TestPrivateMachineResumes: a machine without a public address is waited for after every start,
// and does again what it did before.
func TestPrivateMachineResumes(t *testing.T) {
	t.Parallel()
	c := newCloud(t)
	var awaited atomic.Bool // SSH was asked for after the last start
	var process *cloud
	c.reached = func(remote.Host) {
		awaited.Store(process != nil && slices.Contains(process.calls(), "StartInstances"))
	}
	c.ssh = values{"private_key": c.key, "bastion": values{"address": "192.0.2.1", "host_keys": []any{publicKey(t)}}}
	c = c.process(t)
	process = &c
	network, worker := c.instance("k8s_network"), c.instance("k8s_machine")
	network.must(networkConfig())
	config := with(workerConfig(network), values{"associate_public_ip_address": false})
	worker.must(config)
	var asked atomic.Int32 // what it does
	idle := *c.duty
	*c.duty = func(ctx context.Context, at fleet.Target) (*maintenance.Duty, error) {
		asked.Add(1)
		return idle(ctx, at)
	}

	config["instance_type"] = "t3.large"
	worker.must(config)
	worker.settled(config)
	if !awaited.Load() || asked.Load() != 1 {
		t.Errorf("after another instance type: awaited %t, asked %d times", awaited.Load(), asked.Load())
	}

	c.wire.arm(t.Context(), 0, false) // forget the first start
	awaited.Store(false)
	id, _ := worker.get("id").(string)
	answer[*ec2.StopInstancesOutput](t)(c.client.EC2.StopInstances(t.Context(), &ec2.StopInstancesInput{InstanceIds: []string{id}}))
	worker.refresh()
	worker.must(config)
	worker.settled(config)
	if !awaited.Load() || asked.Load() != 2 {
		t.Errorf("after it was found stopped: awaited %t, asked %d times", awaited.Load(), asked.Load())
	}
}
