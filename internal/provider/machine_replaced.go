package provider

import (
	"context"

	"github.com/hashicorp/terraform-plugin-framework/resource"

	"github.com/k8s-from-scratch/terraform-provider-k8s/internal/provider/tf"
)

// replacedKey is the private-state entry that tells the deletion of a machine whether another
// machine follows.
//
// Terraform plans a replacement as a change and then, when it knows that it is one, as a creation
// without a state. The deletion gets the planned private state of that second plan. The deletion of
// a machine that ends for good gets that of the plan of the deletion. So every plan writes the
// entry, and only that of a creation writes true. What Create stores has no such entry.
const replacedKey = "replaced"

// markReplacement writes the entry.
func markReplacement(ctx context.Context, req resource.ModifyPlanRequest, resp *resource.ModifyPlanResponse) {
	if resp.Private != nil {
		tf.WritePrivate(ctx, resp.Private, replacedKey, req.State.Raw.IsNull() && !req.Plan.Raw.IsNull(), &resp.Diagnostics)
	}
}

// takeReplacement reports whether another machine follows the one that is deleted. If the deletion
// fails, the state keeps its private state, now without the mark.
func takeReplacement(ctx context.Context, req resource.DeleteRequest, resp *resource.DeleteResponse) bool {
	replaced := tf.ReadPrivate[bool](ctx, req.Private, replacedKey, &resp.Diagnostics)
	tf.WritePrivate(ctx, resp.Private, replacedKey, false, &resp.Diagnostics)
	return replaced
}

// keepsData reports whether the machine that replaces this one gets its data.
func (m machineModel) keepsData() bool { return false }
