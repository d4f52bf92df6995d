package tf

import (
	"context"

	"github.com/hashicorp/terraform-plugin-framework/attr"
	"github.com/hashicorp/terraform-plugin-framework/diag"
	"github.com/hashicorp/terraform-plugin-framework/path"
	"github.com/hashicorp/terraform-plugin-framework/resource"
	"github.com/hashicorp/terraform-plugin-framework/resource/schema"
	"github.com/hashicorp/terraform-plugin-framework/resource/schema/planmodifier"
	"github.com/hashicorp/terraform-plugin-framework/types/basetypes"
	"github.com/hashicorp/terraform-plugin-go/tftypes"
)

// Replacing returns the attributes whose change replaces the resource. ModifyPlan is not told: the
// framework collects what the plan modifiers of attributes say and keeps it to itself. So their
// modifiers are asked once more, for attributes of the types that have such modifiers here: text
// and booleans. No modifier replaces because of an attribute whose planned value is the one in the
// state, so those are not looked at: to read an attribute costs the framework a walk of the schema,
// and most plans change none.
func Replacing(ctx context.Context, req resource.ModifyPlanRequest, diags *diag.Diagnostics) path.Paths {
	s, ok := req.Plan.Schema.(schema.Schema)
	if !ok || req.Plan.Raw.IsNull() || req.State.Raw.IsNull() {
		return nil
	}
	var planned, before map[string]tftypes.Value
	if req.Plan.Raw.As(&planned) != nil || req.State.Raw.As(&before) != nil {
		return nil
	}
	var out path.Paths
	for name, a := range s.Attributes {
		if planned[name].Equal(before[name]) {
			continue
		}
		at := path.Root(name)
		var config, plan, state attr.Value
		diags.Append(req.Config.GetAttribute(ctx, at, &config)...)
		diags.Append(req.Plan.GetAttribute(ctx, at, &plan)...)
		diags.Append(req.State.GetAttribute(ctx, at, &state)...)
		replaces := false
		switch a := a.(type) {
		case schema.StringAttribute:
			for _, m := range a.PlanModifiers {
				r := planmodifier.StringRequest{
					Path: at, PathExpression: at.Expression(), Config: req.Config, Plan: req.Plan, State: req.State,
					ConfigValue: text(ctx, config, diags), PlanValue: text(ctx, plan, diags), StateValue: text(ctx, state, diags), Private: req.Private,
				}
				resp := planmodifier.StringResponse{PlanValue: r.PlanValue, Private: req.Private}
				m.PlanModifyString(ctx, r, &resp)
				replaces = replaces || resp.RequiresReplace
			}
		case schema.BoolAttribute:
			for _, m := range a.PlanModifiers {
				r := planmodifier.BoolRequest{
					Path: at, PathExpression: at.Expression(), Config: req.Config, Plan: req.Plan, State: req.State,
					ConfigValue: truth(ctx, config, diags), PlanValue: truth(ctx, plan, diags), StateValue: truth(ctx, state, diags), Private: req.Private,
				}
				resp := planmodifier.BoolResponse{PlanValue: r.PlanValue, Private: req.Private}
				m.PlanModifyBool(ctx, r, &resp)
				replaces = replaces || resp.RequiresReplace
			}
		}
		if replaces {
			out.Append(at)
		}
	}
	return out
}

func text(ctx context.Context, v attr.Value, diags *diag.Diagnostics) basetypes.StringValue {
	s, ok := v.(basetypes.StringValuable)
	if !ok {
		return basetypes.NewStringNull()
	}
	out, d := s.ToStringValue(ctx)
	diags.Append(d...)
	return out
}

func truth(ctx context.Context, v attr.Value, diags *diag.Diagnostics) basetypes.BoolValue {
	b, ok := v.(basetypes.BoolValuable)
	if !ok {
		return basetypes.NewBoolNull()
	}
	out, d := b.ToBoolValue(ctx)
	diags.Append(d...)
	return out
}
