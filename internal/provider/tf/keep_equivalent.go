package tf

import (
	"context"

	"github.com/hashicorp/terraform-plugin-framework/resource/schema/planmodifier"
	"github.com/hashicorp/terraform-plugin-framework/types/basetypes"
)

const keepDescription = "Another spelling of the same value is no change."

// keepEquivalent plans the value of the state if the configured value is equivalent. The framework
// compares values by their type's semantics only after an operation, not in a plan.
type keepEquivalent struct {
	same func(ctx context.Context, state, plan basetypes.StringValue) bool
}

// KeepEquivalent keeps the value of the state if its type says that the configured value is
// equivalent, such as "60m" and "1h".
func KeepEquivalent(typ basetypes.StringTypable) planmodifier.String {
	return keepEquivalent{func(ctx context.Context, state, plan basetypes.StringValue) bool {
		before, wrong := typ.ValueFromString(ctx, state)
		after, alsoWrong := typ.ValueFromString(ctx, plan)
		v, ok := before.(basetypes.StringValuableWithSemanticEquals)
		if !ok || wrong.HasError() || alsoWrong.HasError() {
			return false
		}
		same, diags := v.StringSemanticEquals(ctx, after)
		return same && !diags.HasError()
	}}
}

// KeepSame keeps the value of the state if same says that the configured value means the same.
func KeepSame(same func(state, plan string) bool) planmodifier.String {
	return keepEquivalent{func(_ context.Context, state, plan basetypes.StringValue) bool {
		return same(state.ValueString(), plan.ValueString())
	}}
}

func (keepEquivalent) Description(context.Context) string         { return keepDescription }
func (keepEquivalent) MarkdownDescription(context.Context) string { return keepDescription }

func (k keepEquivalent) PlanModifyString(ctx context.Context, req planmodifier.StringRequest, resp *planmodifier.StringResponse) {
	if AllSet(req.StateValue, req.PlanValue) && k.same(ctx, req.StateValue, req.PlanValue) {
		resp.PlanValue = req.StateValue
	}
}

// keepSameList is keepEquivalent for lists of strings.
type keepSameList struct {
	same func(state, plan []string) bool
}

// KeepSameList is KeepSame for a whole list of strings.
func KeepSameList(same func(state, plan []string) bool) planmodifier.List { return keepSameList{same} }

func (keepSameList) Description(context.Context) string         { return keepDescription }
func (keepSameList) MarkdownDescription(context.Context) string { return keepDescription }

func (k keepSameList) PlanModifyList(_ context.Context, req planmodifier.ListRequest, resp *planmodifier.ListResponse) {
	if AllSet(req.StateValue, req.PlanValue) && k.same(Strings(req.StateValue.Elements()), Strings(req.PlanValue.Elements())) {
		resp.PlanValue = req.StateValue
	}
}
