package argument

import (
	"context"

	"github.com/hashicorp/terraform-plugin-framework/resource/schema"
	"github.com/hashicorp/terraform-plugin-framework/resource/schema/planmodifier"
	"github.com/hashicorp/terraform-plugin-framework/resource/schema/stringplanmodifier"
)

// AdoptAttribute is the argument adopt.
func AdoptAttribute() schema.BoolAttribute {
	return schema.BoolAttribute{
		Optional: true,
		MarkdownDescription: "Takes over objects of this cluster that another state, or a lost one, has claimed. The other state's next refresh then fails. If a refresh fails here, use " +
			"`-refresh=false`. Set it for one apply and remove it then. Default: `false`; claimed objects are refused before anything is written.",
		PlanModifiers: []planmodifier.Bool{adoptOnce{}},
	}
}

// adoptOnce warns when adopt was not removed after the apply for which it was meant.
type adoptOnce struct{}

func (adoptOnce) Description(context.Context) string {
	return "Warns when it is left in the configuration."
}

func (a adoptOnce) MarkdownDescription(ctx context.Context) string { return a.Description(ctx) }

func (adoptOnce) PlanModifyBool(_ context.Context, req planmodifier.BoolRequest, resp *planmodifier.BoolResponse) {
	if req.StateValue.ValueBool() && req.PlanValue.ValueBool() {
		resp.Diagnostics.AddAttributeWarning(req.Path, "adopt is still set",
			"adopt is meant for one apply, and an earlier apply had it. Remove it: while it is set, an apply that replaces this resource, or an apply with -refresh=false, takes over "+
				"objects that another state has claimed.")
	}
}

// ClaimAttribute is the attribute claim. on says where the claim is, besides in the state, and
// guards what it protects.
func ClaimAttribute(on, guards string) schema.StringAttribute {
	return schema.StringAttribute{
		Computed: true, MarkdownDescription: "Claim: a random text that says which state owns this. An import takes the claim that it finds. The claim is " + on + ". " + guards,
		PlanModifiers: []planmodifier.String{stringplanmodifier.UseStateForUnknown()},
	}
}

// What a claim protects: objects in AWS and keys, or roles and addons.
const (
	GuardsAll     = "An object with the claim of another state is not deleted, and is changed only with `adopt`."
	GuardsRemoval = "An apply replaces the claim of another state by this one. A destroy leaves objects with the claim of another state."
)

// InTags is where the claim of an object in AWS is.
const InTags = "the tag `k8s-from-scratch/claim` of everything that belongs to this resource"
