package machines

import (
	"context"
	"fmt"

	"github.com/hashicorp/terraform-plugin-framework-validators/stringvalidator"
	"github.com/hashicorp/terraform-plugin-framework/attr"
	"github.com/hashicorp/terraform-plugin-framework/diag"
	"github.com/hashicorp/terraform-plugin-framework/path"
	"github.com/hashicorp/terraform-plugin-framework/resource/schema"
	"github.com/hashicorp/terraform-plugin-framework/resource/schema/objectplanmodifier"
	"github.com/hashicorp/terraform-plugin-framework/resource/schema/planmodifier"
	"github.com/hashicorp/terraform-plugin-framework/schema/validator"
	"github.com/hashicorp/terraform-plugin-framework/types"

	infraaws "github.com/k8s-from-scratch/terraform-provider-k8s/infra/aws"
	awsmachine "github.com/k8s-from-scratch/terraform-provider-k8s/infra/aws/machine"
	"github.com/k8s-from-scratch/terraform-provider-k8s/internal/provider/reference"
	"github.com/k8s-from-scratch/terraform-provider-k8s/internal/provider/session"
	"github.com/k8s-from-scratch/terraform-provider-k8s/internal/provider/tf"
)

// spotModel is the argument with which a machine is a Spot instance.
type spotModel struct {
	MaxPrice         types.String `tfsdk:"max_price"`
	DrainOnRebalance types.Bool   `tfsdk:"drain_on_rebalance"`
}

func spotAttribute() schema.SingleNestedAttribute {
	return schema.SingleNestedAttribute{
		Optional: true,
		MarkdownDescription: "Makes a worker a Spot instance of a one-time request; `{}` is enough. EC2 may end it at any time: the node is drained on EC2's notice, and the next apply launches " +
			"another machine. Only for the role `worker`. Adding or removing it replaces the machine. Default: none, an On-Demand instance.",
		PlanModifiers: []planmodifier.Object{objectplanmodifier.RequiresReplaceIf(
			func(_ context.Context, req planmodifier.ObjectRequest, resp *objectplanmodifier.RequiresReplaceIfFuncResponse) {
				resp.RequiresReplace = req.StateValue.IsNull() != req.PlanValue.IsNull()
			}, "Another kind of instance.", "Another kind of instance.")},
		Attributes: map[string]schema.Attribute{
			"max_price": schema.StringAttribute{
				Optional: true,
				MarkdownDescription: "Highest price in US dollars an hour, such as `\"0.05\"`. EC2 ends the machine when the price is higher. A change has no effect until the machine is replaced, and an import does not read it. " +
					"Default: the price of an On-Demand instance, which is what AWS advises.",
				Validators: []validator.String{stringvalidator.LengthAtLeast(1)},
			},
			"drain_on_rebalance": schema.BoolAttribute{
				Optional: true,
				MarkdownDescription: "Whether the node is also drained when EC2 recommends to replace the instance, which it may do long before an interruption, or without one. A change takes effect with the worker pool. " +
					"Default: `false`.",
			},
		},
	}
}

// spot returns how the machine is a Spot instance, nil if it is none.
func (m machineModel) spot(ctx context.Context, diags *diag.Diagnostics) *awsmachine.Spot {
	if m.Spot.IsNull() || m.Spot.IsUnknown() {
		return nil
	}
	s, _ := tf.Object[spotModel](ctx, m.Spot, diags)
	return &awsmachine.Spot{MaxPrice: s.MaxPrice.ValueString()}
}

// spotValue returns spot of a machine that is imported.
func spotValue(spot bool) types.Object {
	fields := map[string]attr.Type{"max_price": types.StringType, "drain_on_rebalance": types.BoolType}
	if !spot {
		return types.ObjectNull(fields)
	}
	return types.ObjectValueMust(fields, map[string]attr.Value{"max_price": types.StringNull(), "drain_on_rebalance": types.BoolNull()})
}

// movesSpot reports whether a Spot instance is replaced because it would have to be stopped for the plan.
func (m machineModel) movesSpot(plan machineModel) bool {
	return !m.Spot.IsNull() && !plan.Spot.IsNull() && m.reshapes(plan)
}

// checkSpot refuses settings that a Spot instance cannot have, and warns of unwise settings for a
// new one.
func (m machineModel) checkSpot(ctx context.Context, isNew bool, diags *diag.Diagnostics) {
	s := m.spot(ctx, diags)
	if s == nil {
		return
	}
	for _, e := range awsmachine.CheckSpot(infraaws.MachineRole(m.Role.ValueString()), s.MaxPrice) {
		at, detail := session.FieldPath(e.Field, e.Err.Error())
		diags.AddAttributeError(at, e.Problem, detail)
	}
	name := m.Name.ValueString()
	network, _ := reference.OfNetwork.Read(ctx, m.Network, diags)
	switch {
	case !reference.Time(network.ExpiresAt).IsZero():
		diags.AddAttributeError(path.Root("network"), "A Spot machine cannot be stopped",
			fmt.Sprintf("k8s_network has expires_at, at which machines power themselves off, and %s is a Spot instance of a one-time request, which EC2 then ends. Remove the machine from the configuration, "+
				"or remove spot, which replaces it, or expires_at.", name))
	case !m.stops():
	case m.pausedNetwork().ValueBool():
		diags.AddAttributeError(path.Root("network"), "A Spot machine cannot be stopped",
			fmt.Sprintf("k8s_network has paused = true, and %s is a Spot instance of a one-time request, which EC2 never stops. Remove the machine from the configuration while the cluster is "+
				"paused, or remove spot, which replaces it.", name))
	default:
		diags.AddAttributeError(path.Root("power_state"), "A Spot machine cannot be stopped",
			fmt.Sprintf("%s is a Spot instance of a one-time request, which EC2 never stops. Destroy the machine instead, or remove spot, which replaces it.", name))
	}
	if isNew && !m.DataVolume.IsNull() {
		diags.AddAttributeWarning(path.Root("data_volume"), "Data on a Spot machine",
			fmt.Sprintf("EC2 ends %s with a notice of two minutes. The volume stays, but the programs that write to it end in the middle of their work, and no pod has the data until the next "+
				"apply.", name))
	}
}
