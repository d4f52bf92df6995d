package providertest

import (
	"context"
	"os"
	"slices"
	"testing"

	"github.com/hashicorp/terraform-plugin-go/tfprotov6"

	infraaws "github.com/k8s-from-scratch/terraform-provider-k8s/infra/aws"
)

// EveryKill is set by K8S_KILLS=all, before TestMain empties the environment.
var EveryKill = os.Getenv("K8S_KILLS") == "all"

// KilledOperation is one operation of one resource. A nil from is a creation, a nil to a deletion.
// then, if there is one, is applied between the two.
type KilledOperation struct {
	Name, Resource string
	From, Then, To func(*Killed) Values
	Volume         bool // whether there is a volume beside
	NoNetwork      bool // whether there is a default VPC in place of a network
}

// Killed is the world in which an operation is killed.
type Killed struct {
	T       *testing.T
	Op      KilledOperation
	Cloud   Cloud
	Network *Instance // of which the resource may be a part
	Volume  *Instance // nil unless the operation needs one
	Object  *Instance
	Default *DefaultVPC // nil unless the operation has no network
}

// plan plans the operation.
func (k *Killed) plan() Change {
	k.T.Helper()
	if k.Op.To == nil {
		return k.Object.Plan(nil)
	}
	return k.Object.Plan(k.Op.To(k))
}

// Undisturbed carries the operation out and returns its calls.
func (k *Killed) Undisturbed() []string {
	k.T.Helper()
	planned := k.plan()
	before := len(k.Cloud.Calls())
	k.Cloud.Fatal(k.Object.Apply(planned))
	calls := k.Cloud.Calls()[before:]
	k.ends()
	return calls
}

// Die carries out a plan until the wire, which is armed, ends the process.
func (k *Killed) Die(ctx context.Context, planned Change) {
	k.T.Helper()
	k.Cloud.Fatal(planned.Errors)
	i, process, ended := k.Object, k.Cloud, make(chan struct{})
	request := &tfprotov6.ApplyResourceChangeRequest{
		TypeName: i.TypeName, PriorState: k.Cloud.Dynamic(i.Schema, i.State), Config: k.Cloud.Dynamic(i.Schema, planned.Config),
		PlannedState: k.Cloud.Dynamic(i.Schema, planned.Planned), PlannedPrivate: planned.Private,
	}
	// Terraform hears no answer, so the state stays as it was. Nobody waits for what a dead process
	// would still try: none of it arrives.
	go func() {
		defer close(ended)
		_, _ = process.Server.ApplyResourceChange(ctx, request)
	}()
	select {
	case <-ended:
	case <-ctx.Done():
	}
}

// At kills the provider at one call and lets the next process go on. If the CLI outlives the
// provider, it stores the object of an update without its private state.
func (k *Killed) At(call int, arrives, survived bool) {
	k.T.Helper()
	planned := k.plan()
	k.Die(k.Cloud.Wire.Arm(k.T.Context(), call, arrives), planned)
	if !k.Cloud.Wire.Dead() {
		k.T.Skipf("it ended after %d calls", len(k.Cloud.Calls()))
	}
	died := k.Cloud.Calls()

	if survived {
		k.Object.Private = nil
	}
	k.Cloud = k.Cloud.ProcessOver(k.T, &Wire{})
	k.Network.core, k.Object.core = k.Cloud.Core, k.Cloud.Core
	if k.Volume != nil {
		k.Volume.core = k.Cloud.Core
	}
	if !k.Object.State.IsNull() {
		k.Object.Refresh()
	}
	if k.Op.To != nil || !k.Object.State.IsNull() {
		next := k.plan()
		if failure := next.Failure(); failure != "" {
			k.T.Fatalf("after %s: %s", died[len(died)-1], failure)
		}
		if said := k.Object.CarryOut(next); len(said.Errors) > 0 {
			k.T.Fatalf("after %s: %s", died[len(died)-1], said.Failure())
		}
	}
	k.ends()
}

// ends checks that the operation has its result and nothing else, and deletes everything.
func (k *Killed) ends() {
	k.T.Helper()
	if k.Op.To != nil {
		k.Object.Converged(k.Op.To(k))
	} else if !k.Object.State.IsNull() {
		k.T.Error("it still exists")
	}
	o := k.Cloud.Account.Cloud.Overview()
	instances := 0
	if k.Op.Resource == "k8s_machine" && k.Op.To != nil {
		instances = 1
	}
	networks := 1
	if k.Op.Resource == "k8s_network" && k.Op.To == nil {
		networks = 0
	}
	subnets := networks
	if k.Default != nil {
		subnets = len(k.Default.Subnets)
	}
	if len(o.Instances) != instances || len(o.VPCs) != networks || len(o.Gateways) != networks || len(o.Subnets) != subnets {
		k.T.Errorf("there are %d instances, %d VPCs, %d gateways, %d subnets", len(o.Instances), len(o.VPCs), len(o.Gateways), len(o.Subnets))
	}
	images := 0
	if k.Op.Resource == "k8s_image" && k.Op.To != nil {
		images = 1
	}
	if len(o.Images) != images || len(o.Snapshots) != images {
		k.T.Errorf("there are %d images and %d snapshots, wanted %d", len(o.Images), len(o.Snapshots), images)
	}
	volumes := instances // their root volumes
	if k.Op.Volume || k.Op.Resource == "k8s_volume" && k.Op.To != nil {
		volumes++
	}
	if len(o.Volumes) != volumes {
		k.T.Errorf("there are %d volumes, wanted %d", len(o.Volumes), volumes)
	}
	if k.Op.Volume && k.Op.To != nil {
		id := k.Volume.Get("id")
		if uuid := k.Cloud.FileSystem(k.T, id); uuid == "" || k.Cloud.VolumeTag(k.T, id, infraaws.TagFileSystem) != uuid || k.Cloud.Mounts(k.T, k.Object) == "" {
			k.T.Errorf("file system %q, tag %q, mounts %q", uuid, k.Cloud.VolumeTag(k.T, id, infraaws.TagFileSystem), k.Cloud.Mounts(k.T, k.Object))
		}
	}
	for _, i := range slices.Compact([]*Instance{k.Object, k.Volume, k.Network}) {
		if i != nil && !i.State.IsNull() {
			k.Cloud.Fatal(i.Apply(i.Plan(nil)))
		}
	}
	if k.Default != nil {
		k.Default.Delete(k.T)
	}
	k.Cloud.Account.Empty()
}
