package roles_test

import (
	"testing"

	"github.com/hashicorp/terraform-plugin-framework/resource"
	"github.com/hashicorp/terraform-plugin-framework/tfsdk"
	"github.com/hashicorp/terraform-plugin-go/tftypes"

	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/rollout/controlplane"
	"github.com/k8s-from-scratch/terraform-provider-k8s/internal/provider/providertest"
	"github.com/k8s-from-scratch/terraform-provider-k8s/internal/provider/roles"
)

// TestConvertedOnce counts how often a plan that knows every file converts a setting.
func TestConvertedOnce(t *testing.T) {
	t.Parallel()
	c := providertest.NewRoles(t)
	r := roles.NewControlPlane().(*roles.RoleResource[roles.ControlPlaneModel, controlplane.ControlPlane])
	converted := 0
	r.Settings().Count("version", &converted)
	r.Session = c.Data
	var described resource.SchemaResponse
	r.Schema(t.Context(), resource.SchemaRequest{}, &described)
	change := c.Instance("k8s_control_plane").Plan(c.ControlPlane)
	req := resource.ModifyPlanRequest{
		Config: tfsdk.Config{Schema: described.Schema, Raw: change.Config},
		Plan:   tfsdk.Plan{Schema: described.Schema, Raw: change.Planned},
		State:  tfsdk.State{Schema: described.Schema, Raw: tftypes.NewValue(change.Planned.Type(), nil)},
	}
	resp := resource.ModifyPlanResponse{Plan: req.Plan}
	r.ModifyPlan(t.Context(), req, &resp)
	var m roles.ControlPlaneModel
	resp.Diagnostics.Append(resp.Plan.Get(t.Context(), &m)...)
	if resp.Diagnostics.HasError() {
		t.Fatal(resp.Diagnostics)
	}
	if m.Files.IsUnknown() || len(m.Files.Elements()) == 0 || converted != 1 {
		t.Errorf("%d conversions for the files %v", converted, m.Files)
	}
}
