package tf

import (
	"fmt"
	"testing"

	"github.com/hashicorp/terraform-plugin-framework/diag"
	"github.com/hashicorp/terraform-plugin-framework/resource"
	"github.com/hashicorp/terraform-plugin-framework/resource/schema"
	"github.com/hashicorp/terraform-plugin-framework/resource/schema/planmodifier"
	"github.com/hashicorp/terraform-plugin-framework/resource/schema/stringplanmodifier"
	"github.com/hashicorp/terraform-plugin-framework/tfsdk"
	"github.com/hashicorp/terraform-plugin-go/tftypes"
)

// TestReplacing also counts what a plan without changes costs, since there is one for each machine.
func TestReplacing(t *testing.T) {
	s := schema.Schema{Attributes: map[string]schema.Attribute{}}
	types, values := map[string]tftypes.Type{}, map[string]tftypes.Value{}
	for n := range 30 {
		name := fmt.Sprintf("a%d", n)
		s.Attributes[name] = schema.StringAttribute{Required: true, PlanModifiers: []planmodifier.String{stringplanmodifier.RequiresReplace()}}
		types[name], values[name] = tftypes.String, tftypes.NewValue(tftypes.String, "as it is")
	}
	object := tftypes.Object{AttributeTypes: types}
	request := func(change string) resource.ModifyPlanRequest {
		planned := map[string]tftypes.Value{}
		for name, v := range values {
			planned[name] = v
		}
		if change != "" {
			planned[change] = tftypes.NewValue(tftypes.String, "another")
		}
		before, after := tftypes.NewValue(object, values), tftypes.NewValue(object, planned)
		return resource.ModifyPlanRequest{Config: tfsdk.Config{Schema: s, Raw: after}, Plan: tfsdk.Plan{Schema: s, Raw: after}, State: tfsdk.State{Schema: s, Raw: before}}
	}
	var diags diag.Diagnostics
	if got := Replacing(t.Context(), request("a7"), &diags); len(got) != 1 || got[0].String() != "a7" || diags.HasError() {
		t.Errorf("replaced by %v, %v", got, diags)
	}
	same := request("")
	allocations := testing.AllocsPerRun(10, func() {
		if got := Replacing(t.Context(), same, &diags); len(got) > 0 {
			t.Errorf("replaced by %v", got)
		}
	})
	if allocations > 300 {
		t.Errorf("a plan that changes none of 30 attributes takes %.0f allocations", allocations)
	}
}
