package provider_test

import (
	"fmt"
	"sync/atomic"
	"testing"

	"github.com/k8s-from-scratch/terraform-provider-k8s/internal/provider/providertest"
)

// TestKilledAtEveryCall kills the provider at every call to AWS and every command on a machine, of
// every operation of every resource that has anything in AWS: once before the call arrives, once
// after it took effect. The next process, which knows the state from before the operation, must
// complete the same operation: every object exists once, the second plan is empty, and nothing is
// left after the deletion. Without K8S_KILLS=all, as make soak PART=kills-calls sets it, it kills at
// every eighth call only.
func TestKilledAtEveryCall(t *testing.T) {
	t.Parallel()
	network := func(more providertest.Values) func(*providertest.Killed) providertest.Values {
		return func(*providertest.Killed) providertest.Values {
			return providertest.With(providertest.NetworkConfig(), more)
		}
	}
	worker := func(more providertest.Values) func(*providertest.Killed) providertest.Values {
		return func(k *providertest.Killed) providertest.Values {
			return providertest.With(providertest.WorkerConfig(k.Network), more)
		}
	}
	pausedWorker := func(paused bool) func(*providertest.Killed) providertest.Values {
		return func(k *providertest.Killed) providertest.Values {
			ref, _ := k.Network.Get("ref").(providertest.Values)
			return providertest.With(providertest.WorkerConfig(k.Network), providertest.Values{"network": providertest.With(ref, providertest.Values{"paused": paused})})
		}
	}
	keys := func(more providertest.Values) func(*providertest.Killed) providertest.Values {
		return func(*providertest.Killed) providertest.Values {
			return providertest.With(providertest.Values{"cluster": "demo"}, more)
		}
	}
	etcdVolume := func(more providertest.Values) func(*providertest.Killed) providertest.Values {
		return func(k *providertest.Killed) providertest.Values {
			return providertest.With(providertest.VolumeConfig(k.Network), more)
		}
	}
	image := func(more providertest.Values) func(*providertest.Killed) providertest.Values {
		return func(k *providertest.Killed) providertest.Values {
			return providertest.With(providertest.ImageConfig(k.Network), more)
		}
	}
	balancers := func(more providertest.Values) func(*providertest.Killed) providertest.Values {
		stopped := providertest.Values{"name": "controller-0", "address": "203.0.113.8", "private_ip": "10.240.0.10", "host_key": providertest.PublicKey(t), "instance_id": "i-0123456789abcdef0", "power_state": "stopped"}
		return func(k *providertest.Killed) providertest.Values {
			return providertest.With(providertest.Values{"network": k.Network.Get("ref"), "controllers": []any{stopped}}, more)
		}
	}
	controller := func(k *providertest.Killed) providertest.Values {
		return providertest.ControllerConfig(k.Network, k.Volume)
	}
	bare := func(k *providertest.Killed) providertest.Values {
		return providertest.With(controller(k), providertest.Values{"data_volume": nil})
	}
	step := 8
	if providertest.EveryKill {
		step = 1
	}
	expiring := func(at any) func(*providertest.Killed) providertest.Values {
		return func(k *providertest.Killed) providertest.Values {
			ref, _ := k.Network.Get("ref").(providertest.Values)
			return providertest.With(providertest.WorkerConfig(k.Network), providertest.Values{"network": providertest.With(ref, providertest.Values{"expires_at": at})})
		}
	}
	operations := []providertest.KilledOperation{
		{Name: "create a network", Resource: "k8s_network", To: network(nil)},
		{Name: "change a network", Resource: "k8s_network", From: network(nil),
			To: network(providertest.Values{"admin_cidrs": []any{"198.51.100.8/32"}, "nodeport_cidrs": []any{"0.0.0.0/0"}, "tags": providertest.Values{"room": "12"}})},
		{Name: "delete a network", Resource: "k8s_network", From: network(nil)},
		{Name: "create a machine", Resource: "k8s_machine", To: worker(nil)},
		{Name: "change a machine in place", Resource: "k8s_machine", From: worker(nil),
			To: worker(providertest.Values{"pod_cidr": "10.200.7.0/24", "root_volume_size": 30, "tags": providertest.Values{"room": "12"}})},
		{Name: "change the type of a machine", Resource: "k8s_machine", From: worker(nil), To: worker(providertest.Values{"instance_type": "t3.large"})},
		{Name: "stop a machine", Resource: "k8s_machine", From: worker(nil), To: worker(providertest.Values{"power_state": "stopped"})},
		{Name: "start a machine", Resource: "k8s_machine", From: worker(nil), Then: worker(providertest.Values{"power_state": "stopped"}), To: worker(nil)},
		{Name: "pause a cluster", Resource: "k8s_machine", From: worker(nil), To: pausedWorker(true)},
		{Name: "resume a cluster", Resource: "k8s_machine", From: worker(nil), Then: pausedWorker(true), To: pausedWorker(false)},
		{Name: "create a machine that expires", Resource: "k8s_machine", To: expiring("2126-12-01T18:00:00Z")},
		{Name: "let a machine expire", Resource: "k8s_machine", From: worker(nil), To: expiring("2126-12-01T18:00:00Z")},
		{Name: "let a machine not expire", Resource: "k8s_machine", From: worker(nil), Then: expiring("2126-12-01T18:00:00Z"), To: worker(nil)},
		{Name: "delete a machine", Resource: "k8s_machine", From: worker(nil)},
		{Name: "create a volume", Resource: "k8s_volume", To: etcdVolume(nil)},
		{Name: "change a volume", Resource: "k8s_volume", From: etcdVolume(nil), To: etcdVolume(providertest.Values{"size": 20, "iops": 4000, "tags": providertest.Values{"room": "12"}})},
		{Name: "delete a volume", Resource: "k8s_volume", From: etcdVolume(nil)},
		{Name: "create a machine with a data volume", Resource: "k8s_machine", Volume: true, To: controller},
		{Name: "give a machine a data volume", Resource: "k8s_machine", Volume: true, From: bare, To: controller},
		{Name: "delete a machine with a data volume", Resource: "k8s_machine", Volume: true, From: controller},
		{Name: "create an image", Resource: "k8s_image", To: image(nil)},
		{Name: "create an image in the default VPC", Resource: "k8s_image", NoNetwork: true, To: func(k *providertest.Killed) providertest.Values { return k.Default.Image() }},
		{Name: "change an image", Resource: "k8s_image", From: image(nil), To: image(providertest.Values{"tags": providertest.Values{"room": "12"}})},
		{Name: "delete an image", Resource: "k8s_image", From: image(nil)},
		{Name: "create keys", Resource: "k8s_pki", To: keys(nil)},
		{Name: "restore keys", Resource: "k8s_pki", To: providertest.KeysFromCopy(t)},
		{Name: "rotate keys", Resource: "k8s_pki", From: keys(nil), To: keys(providertest.Values{"generations": providertest.Values{"kubernetes_ca": []any{1, 2}, "encryption": []any{1, 2}}})},
		{Name: "tag keys", Resource: "k8s_pki", From: keys(nil), To: keys(providertest.Values{"tags": providertest.Values{"room": "12"}})},
		{Name: "create load balancers", Resource: "k8s_nlb", To: balancers(nil)},
		{Name: "make load balancers private", Resource: "k8s_nlb", From: balancers(nil), To: balancers(providertest.Values{"public": false, "tags": providertest.Values{"room": "12"}})},
		{Name: "delete load balancers", Resource: "k8s_nlb", From: balancers(nil)},
		{Name: "delete keys", Resource: "k8s_pki", From: keys(nil)},
	}
	var kills atomic.Int32
	t.Cleanup(func() { t.Logf("figures: %d kills at the calls of %d operations", kills.Load(), len(operations)) })
	for n, op := range operations {
		t.Run(op.Name, func(t *testing.T) {
			t.Parallel()
			calls := len(newKilled(t, op).Undisturbed())
			for at := 1 + n%step; at <= calls; at += step {
				for _, arrives := range []bool{false, true} {
					kills.Add(1)
					t.Run(fmt.Sprintf("call %d arrives %t", at, arrives), func(t *testing.T) {
						t.Parallel()
						newKilled(t, op).At(at, arrives, false)
					})
				}
				if op.From != nil && op.To != nil {
					kills.Add(1)
					t.Run(fmt.Sprintf("call %d arrives, the CLI lives", at), func(t *testing.T) {
						t.Parallel()
						newKilled(t, op).At(at, true, true)
					})
				}
			}
		})
	}
}

func newKilled(t *testing.T, op providertest.KilledOperation) *providertest.Killed {
	t.Helper()
	k := &providertest.Killed{T: t, Op: op, Cloud: providertest.NewCloud(t)}
	if op.Resource == "k8s_image" {
		k.Cloud = providertest.NewImageCloud(t)
	}
	k.Object = k.Cloud.Instance(op.Resource)
	k.Network = k.Object
	switch {
	case op.NoNetwork:
		k.Default = providertest.NewDefaultVPC(t, k.Cloud.Client.EC2)
	case op.Resource != "k8s_network":
		k.Network = k.Cloud.Instance("k8s_network")
		k.Network.Must(providertest.NetworkConfig())
	}
	if op.Volume {
		k.Volume = k.Cloud.Instance("k8s_volume")
		k.Volume.Must(providertest.VolumeConfig(k.Network))
	}
	if op.From != nil {
		k.Object.Must(op.From(k))
	}
	if op.Then != nil {
		k.Object.Must(op.Then(k))
	}
	return k
}
