package provider

import (
	"context"
	"fmt"
	"os"
	"slices"
	"sync/atomic"
	"testing"

	"github.com/hashicorp/terraform-plugin-go/tfprotov6"

	infraaws "github.com/k8s-from-scratch/terraform-provider-k8s/infra/aws"
)

// TestKilledAtEveryCall kills the provider at every call to AWS and every command on a machine, of
// every operation of every resource that has anything in AWS: once before the call arrives, once
// after it took effect. The next process, which knows the state from before the operation, must
// bring the same operation to its end, with one of everything, a second plan that is empty, and
// nothing left after the deletion. Without K8S_KILLS=all, as make soak PART=kills sets it, it kills
// at every eighth call only.
func TestKilledAtEveryCall(t *testing.T) {
	t.Parallel()
	network := func(more values) func(*killed) values {
		return func(*killed) values { return with(networkConfig(), more) }
	}
	worker := func(more values) func(*killed) values {
		return func(k *killed) values { return with(workerConfig(k.network), more) }
	}
	pausedWorker := func(paused bool) func(*killed) values {
		return func(k *killed) values {
			ref, _ := k.network.get("ref").(values)
			return with(workerConfig(k.network), values{"network": with(ref, values{"paused": paused})})
		}
	}
	keys := func(more values) func(*killed) values {
		return func(*killed) values { return with(values{"cluster": "demo"}, more) }
	}
	etcdVolume := func(more values) func(*killed) values {
		return func(k *killed) values { return with(volumeConfig(k.network), more) }
	}
	balancers := func(more values) func(*killed) values {
		stopped := values{"name": "controller-0", "address": "203.0.113.8", "private_ip": "10.240.0.10", "host_key": publicKey(t), "instance_id": "i-0123456789abcdef0", "power_state": "stopped"}
		return func(k *killed) values {
			return with(values{"network": k.network.get("ref"), "controllers": []any{stopped}}, more)
		}
	}
	controller := func(k *killed) values { return controllerConfig(k.network, k.volume) }
	bare := func(k *killed) values { return with(controller(k), values{"data_volume": nil}) }
	step := 8
	if everyKill {
		step = 1
	}
	operations := []killedOperation{
		{name: "create a network", resource: "k8s_network", to: network(nil)},
		{name: "change a network", resource: "k8s_network", from: network(nil),
			to: network(values{"admin_cidrs": []any{"198.51.100.8/32"}, "nodeport_cidrs": []any{"0.0.0.0/0"}, "tags": values{"room": "12"}})},
		{name: "delete a network", resource: "k8s_network", from: network(nil)},
		{name: "create a machine", resource: "k8s_machine", to: worker(nil)},
		{name: "change a machine in place", resource: "k8s_machine", from: worker(nil),
			to: worker(values{"pod_cidr": "10.200.7.0/24", "root_volume_size": 30, "tags": values{"room": "12"}})},
		{name: "change the type of a machine", resource: "k8s_machine", from: worker(nil), to: worker(values{"instance_type": "t3.large"})},
		{name: "stop a machine", resource: "k8s_machine", from: worker(nil), to: worker(values{"power_state": "stopped"})},
		{name: "start a machine", resource: "k8s_machine", from: worker(nil), then: worker(values{"power_state": "stopped"}), to: worker(nil)},
		{name: "pause a cluster", resource: "k8s_machine", from: worker(nil), to: pausedWorker(true)},
		{name: "resume a cluster", resource: "k8s_machine", from: worker(nil), then: pausedWorker(true), to: pausedWorker(false)},
		{name: "delete a machine", resource: "k8s_machine", from: worker(nil)},
		{name: "create a volume", resource: "k8s_volume", to: etcdVolume(nil)},
		{name: "change a volume", resource: "k8s_volume", from: etcdVolume(nil), to: etcdVolume(values{"size": 20, "iops": 4000, "tags": values{"room": "12"}})},
		{name: "delete a volume", resource: "k8s_volume", from: etcdVolume(nil)},
		{name: "create a machine with a data volume", resource: "k8s_machine", volume: true, to: controller},
		{name: "give a machine a data volume", resource: "k8s_machine", volume: true, from: bare, to: controller},
		{name: "delete a machine with a data volume", resource: "k8s_machine", volume: true, from: controller},
		{name: "create keys", resource: "k8s_pki", to: keys(nil)},
		{name: "restore keys", resource: "k8s_pki", to: keysFromCopy(t)},
		{name: "rotate keys", resource: "k8s_pki", from: keys(nil), to: keys(values{"generations": values{"kubernetes_ca": []any{1, 2}, "encryption": []any{1, 2}}})},
		{name: "tag keys", resource: "k8s_pki", from: keys(nil), to: keys(values{"tags": values{"room": "12"}})},
		{name: "create load balancers", resource: "k8s_nlb", to: balancers(nil)},
		{name: "make load balancers private", resource: "k8s_nlb", from: balancers(nil), to: balancers(values{"public": false, "tags": values{"room": "12"}})},
		{name: "delete load balancers", resource: "k8s_nlb", from: balancers(nil)},
		{name: "delete keys", resource: "k8s_pki", from: keys(nil)},
	}
	var kills atomic.Int32
	t.Cleanup(func() { t.Logf("figures: %d kills at the calls of %d operations", kills.Load(), len(operations)) })
	for n, op := range operations {
		t.Run(op.name, func(t *testing.T) {
			t.Parallel()
			calls := len(newKilled(t, op).undisturbed())
			for at := 1 + n%step; at <= calls; at += step {
				for _, arrives := range []bool{false, true} {
					kills.Add(1)
					t.Run(fmt.Sprintf("call %d arrives %t", at, arrives), func(t *testing.T) {
						t.Parallel()
						newKilled(t, op).at(at, arrives, false)
					})
				}
				if op.from != nil && op.to != nil {
					kills.Add(1)
					t.Run(fmt.Sprintf("call %d arrives, the CLI lives", at), func(t *testing.T) {
						t.Parallel()
						newKilled(t, op).at(at, true, true)
					})
				}
			}
		})
	}
}

// everyKill is set by K8S_KILLS=all, before TestMain empties the environment.
var everyKill = os.Getenv("K8S_KILLS") == "all"

// killedOperation is one operation of one resource. A nil from is a creation, a nil to a deletion.
// then, if there is one, is applied between the two.
type killedOperation struct {
	name, resource string
	from, then, to func(*killed) values
	volume         bool // whether there is a volume beside
}

// killed is the world in which an operation is killed.
type killed struct {
	t       *testing.T
	op      killedOperation
	cloud   cloud
	network *instance // of which the resource may be a part
	volume  *instance // nil unless the operation needs one
	object  *instance
}

func newKilled(t *testing.T, op killedOperation) *killed {
	t.Helper()
	k := &killed{t: t, op: op, cloud: newCloud(t)}
	k.object = k.cloud.instance(op.resource)
	if k.network = k.object; op.resource != "k8s_network" {
		k.network = k.cloud.instance("k8s_network")
		k.network.must(networkConfig())
	}
	if op.volume {
		k.volume = k.cloud.instance("k8s_volume")
		k.volume.must(volumeConfig(k.network))
	}
	if op.from != nil {
		k.object.must(op.from(k))
	}
	if op.then != nil {
		k.object.must(op.then(k))
	}
	return k
}

// plan plans the operation.
func (k *killed) plan() change {
	k.t.Helper()
	if k.op.to == nil {
		return k.object.plan(nil)
	}
	return k.object.plan(k.op.to(k))
}

// undisturbed carries the operation out and returns its calls.
func (k *killed) undisturbed() []string {
	k.t.Helper()
	planned := k.plan()
	before := len(k.cloud.calls())
	k.cloud.fatal(k.object.apply(planned))
	calls := k.cloud.calls()[before:]
	k.ends()
	return calls
}

// die carries out a plan until the wire, which is armed, ends the process.
func (k *killed) die(ctx context.Context, planned change) {
	k.t.Helper()
	k.cloud.fatal(planned.errors)
	i, process, ended := k.object, k.cloud, make(chan struct{})
	request := &tfprotov6.ApplyResourceChangeRequest{
		TypeName: i.typeName, PriorState: k.cloud.dynamic(i.schema, i.state), Config: k.cloud.dynamic(i.schema, planned.config),
		PlannedState: k.cloud.dynamic(i.schema, planned.planned), PlannedPrivate: planned.private,
	}
	// Terraform hears no answer, so the state stays as it was. Nobody waits for what a dead process
	// would still try: none of it arrives.
	go func() {
		defer close(ended)
		_, _ = process.server.ApplyResourceChange(ctx, request)
	}()
	select {
	case <-ended:
	case <-ctx.Done():
	}
}

// at kills the provider at one call and lets the next process go on. If the CLI outlives the
// provider, it stores the object of an update without its private state.
func (k *killed) at(call int, arrives, survived bool) {
	k.t.Helper()
	planned := k.plan()
	k.die(k.cloud.wire.arm(k.t.Context(), call, arrives), planned)
	if !k.cloud.wire.dead() {
		k.t.Skipf("it ended after %d calls", len(k.cloud.calls()))
	}
	died := k.cloud.calls()

	if survived {
		k.object.private = nil
	}
	k.cloud = k.cloud.processOver(k.t, &wire{})
	k.network.core, k.object.core = k.cloud.core, k.cloud.core
	if k.volume != nil {
		k.volume.core = k.cloud.core
	}
	if !k.object.state.IsNull() {
		k.object.refresh()
	}
	if k.op.to != nil || !k.object.state.IsNull() {
		next := k.plan()
		if failure := next.failure(); failure != "" {
			k.t.Fatalf("after %s: %s", died[len(died)-1], failure)
		}
		if said := k.object.carryOut(next); len(said.errors) > 0 {
			k.t.Fatalf("after %s: %s", died[len(died)-1], said.failure())
		}
	}
	k.ends()
}

// ends checks that the operation has its result and nothing else, and deletes everything.
func (k *killed) ends() {
	k.t.Helper()
	if k.op.to != nil {
		k.object.settled(k.op.to(k))
	} else if !k.object.state.IsNull() {
		k.t.Error("it still exists")
	}
	o := k.cloud.account.Cloud.Overview()
	instances := 0
	if k.op.resource == "k8s_machine" && k.op.to != nil {
		instances = 1
	}
	networks := 1
	if k.op.resource == "k8s_network" && k.op.to == nil {
		networks = 0
	}
	if len(o.Instances) != instances || len(o.VPCs) != networks || len(o.Gateways) != networks || len(o.Subnets) != networks {
		k.t.Errorf("there are %d instances, %d VPCs, %d gateways, %d subnets", len(o.Instances), len(o.VPCs), len(o.Gateways), len(o.Subnets))
	}
	volumes := instances // their root volumes
	if k.op.volume || k.op.resource == "k8s_volume" && k.op.to != nil {
		volumes++
	}
	if len(o.Volumes) != volumes {
		k.t.Errorf("there are %d volumes, wanted %d", len(o.Volumes), volumes)
	}
	if k.op.volume && k.op.to != nil {
		id := k.volume.get("id")
		if uuid := k.cloud.fileSystem(k.t, id); uuid == "" || k.cloud.volumeTag(k.t, id, infraaws.TagFileSystem) != uuid || k.cloud.mounts(k.t, k.object) == "" {
			k.t.Errorf("file system %q, tag %q, mounts %q", uuid, k.cloud.volumeTag(k.t, id, infraaws.TagFileSystem), k.cloud.mounts(k.t, k.object))
		}
	}
	for _, i := range slices.Compact([]*instance{k.object, k.volume, k.network}) {
		if i != nil && !i.state.IsNull() {
			k.cloud.fatal(i.apply(i.plan(nil)))
		}
	}
	k.cloud.account.Empty()
}
