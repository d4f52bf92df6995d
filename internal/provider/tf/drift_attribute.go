package tf

import (
	"context"

	"github.com/hashicorp/terraform-plugin-framework/resource/schema"
	"github.com/hashicorp/terraform-plugin-framework/resource/schema/planmodifier"
	"github.com/hashicorp/terraform-plugin-framework/types"
)

// DriftAttribute is the computed attribute drift. Read sets it; the plan always sets it to empty,
// so that every finding shows as a change, which Update repairs.
func DriftAttribute() schema.MapAttribute {
	return schema.MapAttribute{
		Computed: true, ElementType: types.StringType,
		MarkdownDescription: "Differences between the configuration and what was found, in words, by machine or object. Empty if there are none. A plan always sets it to empty; " +
			"apply then looks again, and repairs in place what differs at that time.",
		PlanModifiers: []planmodifier.Map{driftToEmpty{}},
	}
}

// driftToEmpty plans an empty map.
type driftToEmpty struct{}

func (driftToEmpty) Description(context.Context) string         { return "Planned to be empty." }
func (driftToEmpty) MarkdownDescription(context.Context) string { return "Planned to be empty." }

func (driftToEmpty) PlanModifyMap(_ context.Context, req planmodifier.MapRequest, resp *planmodifier.MapResponse) {
	if req.Plan.Raw.IsNull() {
		return
	}
	resp.PlanValue = NoDrift()
}

// NoDrift returns the empty value of drift.
func NoDrift() types.Map { return StringMapValue(nil) }
