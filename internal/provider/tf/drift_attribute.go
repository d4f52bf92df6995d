package tf

import (
	"context"

	"github.com/hashicorp/terraform-plugin-framework/resource/schema"
	"github.com/hashicorp/terraform-plugin-framework/resource/schema/planmodifier"
	"github.com/hashicorp/terraform-plugin-framework/types"
)

// DriftAttribute is the computed map every resource with something to
// reconcile has. Read fills it; the plan always wants it empty, so that
// whatever was found shows as a change, and Update repairs it.
func DriftAttribute() schema.MapAttribute {
	return schema.MapAttribute{
		Computed: true, ElementType: types.StringType,
		MarkdownDescription: "Differences between the configuration and what was found, in words, by machine or object. Empty if there are none. A plan always sets it to empty; " +
			"apply then repairs exactly what is listed, in place.",
		PlanModifiers: []planmodifier.Map{driftToEmpty{}},
	}
}

// driftToEmpty plans an empty map, whatever was found.
type driftToEmpty struct{}

func (driftToEmpty) Description(context.Context) string         { return "Planned to be empty." }
func (driftToEmpty) MarkdownDescription(context.Context) string { return "Planned to be empty." }

func (driftToEmpty) PlanModifyMap(_ context.Context, req planmodifier.MapRequest, resp *planmodifier.MapResponse) {
	if req.Plan.Raw.IsNull() {
		return
	}
	resp.PlanValue = NoDrift()
}

// NoDrift is the value of drift when all is well, and after every apply.
func NoDrift() types.Map { return StringMapValue(nil) }
