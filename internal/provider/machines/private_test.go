package machines_test

import (
	"context"
	"slices"
	"sync/atomic"
	"testing"

	"github.com/aws/aws-sdk-go-v2/service/ec2"

	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/fleet"
	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/maintenance"
	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/remote"
	"github.com/k8s-from-scratch/terraform-provider-k8s/internal/provider/providertest"
)

// TestPrivateMachineResumes: a machine without a public address is waited for after every start,
// and does again what it did before.
func TestPrivateMachineResumes(t *testing.T) {
	t.Parallel()
	c := providertest.NewCloud(t)
	var awaited atomic.Bool // SSH was asked for after the last start
	var process *providertest.Cloud
	c.Reached = func(remote.Host) {
		awaited.Store(process != nil && slices.Contains(process.Calls(), "StartInstances"))
	}
	c.SSH = providertest.Values{"private_key": c.Key, "bastion": providertest.Values{"address": "192.0.2.1", "host_keys": []any{providertest.PublicKey(t)}}}
	c = c.Process(t)
	process = &c
	network, worker := c.Instance("k8s_network"), c.Instance("k8s_machine")
	network.Must(providertest.NetworkConfig())
	config := providertest.With(providertest.WorkerConfig(network), providertest.Values{"associate_public_ip_address": false})
	worker.Must(config)
	var asked atomic.Int32 // what it does
	idle := *c.Duty
	*c.Duty = func(ctx context.Context, at fleet.Target) (*maintenance.Duty, error) {
		asked.Add(1)
		return idle(ctx, at)
	}

	config["instance_type"] = "t3.large"
	worker.Must(config)
	worker.Converged(config)
	if !awaited.Load() || asked.Load() != 1 {
		t.Errorf("after another instance type: awaited %t, asked %d times", awaited.Load(), asked.Load())
	}

	c.Wire.Arm(t.Context(), 0, false) // forget the first start
	awaited.Store(false)
	id, _ := worker.Get("id").(string)
	providertest.Answer[*ec2.StopInstancesOutput](t)(c.Client.EC2.StopInstances(t.Context(), &ec2.StopInstancesInput{InstanceIds: []string{id}}))
	worker.Refresh()
	worker.Must(config)
	worker.Converged(config)
	if !awaited.Load() || asked.Load() != 2 {
		t.Errorf("after it was found stopped: awaited %t, asked %d times", awaited.Load(), asked.Load())
	}
}
