package machines

import (
	"context"

	"github.com/hashicorp/terraform-plugin-framework/diag"
	"github.com/hashicorp/terraform-plugin-framework/resource"

	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/component"
	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/maintenance"
	"github.com/k8s-from-scratch/terraform-provider-k8s/internal/provider/owned"
	"github.com/k8s-from-scratch/terraform-provider-k8s/internal/provider/tf"
)

// replacedKey is the private-state entry that tells the deletion of a machine whether another
// machine follows.
//
// Terraform plans a replacement as a change and then, when it knows that it is one, as a creation
// without a state. The deletion gets the planned private state of that second plan. The deletion of
// a machine without a successor gets the private state of the plan of the deletion. So every plan
// writes the entry, and only the plan of a creation writes true. What Create stores has no such
// entry.
const replacedKey = "replaced"

// nextVolumeKey is the private-state entry beside it: the data volume that the machine of a planned
// creation has on the data of etcd; empty if it has none, or one that is not known yet.
const nextVolumeKey = "next_volume"

// markReplacement writes both entries.
func markReplacement(ctx context.Context, req resource.ModifyPlanRequest, resp *resource.ModifyPlanResponse) {
	if resp.Private == nil {
		return
	}
	created := req.State.Raw.IsNull() && !req.Plan.Raw.IsNull()
	var next machineModel
	if created {
		resp.Diagnostics.Append(req.Plan.Get(ctx, &next)...)
	}
	tf.WritePrivate(ctx, resp.Private, replacedKey, created, &resp.Diagnostics)
	tf.WritePrivate(ctx, resp.Private, nextVolumeKey, next.etcdVolume(ctx, &resp.Diagnostics), &resp.Diagnostics)
}

// takeSuccession returns what follows the machine m, which is deleted. It uses the volume in the
// configuration, whether it is mounted at this moment or not. If the deletion fails, the state keeps its
// private state, now without the mark.
func takeSuccession(ctx context.Context, m machineModel, op *owned.Operation) maintenance.Succession {
	replaced, next := owned.Kept[bool](ctx, op, replacedKey), owned.Kept[string](ctx, op, nextVolumeKey)
	op.Keep(ctx, replacedKey, false)
	switch {
	case !replaced:
		return maintenance.NoSuccessor
	case next != "" && next == m.etcdVolume(ctx, op.Diags):
		return maintenance.WithItsData
	}
	return maintenance.WithoutItsData
}

// etcdVolume returns the id of the data volume with the data of etcd, empty if there is none or if it
// is not known.
func (m machineModel) etcdVolume(ctx context.Context, diags *diag.Diagnostics) string {
	if v := m.dataVolume(ctx, diags); v != nil && v.MountPoint == component.EtcdDataDir {
		return v.ID
	}
	return ""
}
