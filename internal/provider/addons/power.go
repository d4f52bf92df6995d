package addons

import (
	"context"

	"github.com/hashicorp/terraform-plugin-framework/diag"
	"github.com/hashicorp/terraform-plugin-framework/path"
	"github.com/hashicorp/terraform-plugin-framework/resource"

	"github.com/k8s-from-scratch/terraform-provider-k8s/internal/provider/argument"
	"github.com/k8s-from-scratch/terraform-provider-k8s/internal/provider/reference"
)

// off reports whether the machines of the API servers are stopped on purpose: then nothing is
// compared or applied.
func (m *addonModel) off(ctx context.Context, diags *diag.Diagnostics) bool {
	cp, _ := reference.OfControlPlane.Read(ctx, m.ControlPlane, diags)
	return cp.PowerState.ValueString() == reference.Stopped
}

// checkPower refuses a new addon, and any other change of one, while the API servers are stopped.
func (m *addonModel) checkPower(ctx context.Context, req resource.ModifyPlanRequest, diags *diag.Diagnostics) {
	if !m.off(ctx, diags) {
		return
	}
	if req.State.Raw.IsNull() {
		diags.AddAttributeError(path.Root("control_plane"), "The machines are stopped", "The addon cannot be applied while the API servers are stopped: resume first.")
		return
	}
	argument.RefuseChanges(req, "the addon", "the API servers are", nil, diags)
}
