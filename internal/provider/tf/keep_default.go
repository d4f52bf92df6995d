package tf

import (
	"context"

	"github.com/hashicorp/terraform-plugin-framework/resource/schema/planmodifier"
	"github.com/hashicorp/terraform-plugin-framework/types"
)

// keepDefault plans a default for an argument that is not configured.
type keepDefault struct{ fallback string }

// KeepDefault is the default of an optional and computed argument. Unlike a static default it
// counts only for new resources: another release of the provider may have another one, and what
// exists keeps the value of its state.
func KeepDefault(fallback string) planmodifier.String { return keepDefault{fallback} }

func (keepDefault) Description(context.Context) string {
	return "A new default does not change what exists."
}
func (k keepDefault) MarkdownDescription(ctx context.Context) string { return k.Description(ctx) }

func (k keepDefault) PlanModifyString(_ context.Context, req planmodifier.StringRequest, resp *planmodifier.StringResponse) {
	switch {
	case !req.ConfigValue.IsNull():
	case req.StateValue.IsNull():
		resp.PlanValue = types.StringValue(k.fallback)
	default:
		resp.PlanValue = req.StateValue
	}
}
