package tf

import (
	"context"

	"github.com/hashicorp/terraform-plugin-framework/resource/schema/planmodifier"
	"github.com/hashicorp/terraform-plugin-framework/types/basetypes"
)

// keepDescription describes the plan modifiers that keep an equivalent value.
const keepDescription = "Another spelling of the same value is no change."

// keepEquivalent plans the value of the state as long as what is configured
// means the same. The framework asks a type for equivalence only after an
// operation, not when it plans.
type keepEquivalent struct {
	same func(ctx context.Context, state, plan basetypes.StringValue) bool
}

// KeepEquivalent keeps the value of the state when the type says that what is
// configured is equivalent, such as "60m" and "1h".
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

// KeepSame keeps the value of the state when a function says that what is
// configured means the same.
func KeepSame(same func(state, plan string) bool) planmodifier.String {
	return keepEquivalent{func(_ context.Context, state, plan basetypes.StringValue) bool {
		return same(state.ValueString(), plan.ValueString())
	}}
}

func (keepEquivalent) Description(context.Context) string         { return keepDescription }
func (keepEquivalent) MarkdownDescription(context.Context) string { return keepDescription }

func (k keepEquivalent) PlanModifyString(ctx context.Context, req planmodifier.StringRequest, resp *planmodifier.StringResponse) {
	if Given(req.StateValue, req.PlanValue) && k.same(ctx, req.StateValue, req.PlanValue) {
		resp.PlanValue = req.StateValue
	}
}

// keepSameList is keepEquivalent for lists of strings.
type keepSameList struct {
	same func(state, plan []string) bool
}

// KeepSameList is KeepSame for a list of strings as a whole.
func KeepSameList(same func(state, plan []string) bool) planmodifier.List { return keepSameList{same} }

func (keepSameList) Description(context.Context) string         { return keepDescription }
func (keepSameList) MarkdownDescription(context.Context) string { return keepDescription }

func (k keepSameList) PlanModifyList(_ context.Context, req planmodifier.ListRequest, resp *planmodifier.ListResponse) {
	if Given(req.StateValue, req.PlanValue) && k.same(Strings(req.StateValue.Elements()), Strings(req.PlanValue.Elements())) {
		resp.PlanValue = req.StateValue
	}
}
