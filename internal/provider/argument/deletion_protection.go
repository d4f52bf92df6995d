package argument

import (
	"context"
	"fmt"
	"strings"

	"github.com/hashicorp/terraform-plugin-framework/diag"
	"github.com/hashicorp/terraform-plugin-framework/path"
	"github.com/hashicorp/terraform-plugin-framework/resource"
	"github.com/hashicorp/terraform-plugin-framework/resource/schema"
	"github.com/hashicorp/terraform-plugin-framework/tfsdk"
	"github.com/hashicorp/terraform-plugin-framework/types"
	"github.com/hashicorp/terraform-plugin-go/tftypes"

	"github.com/k8s-from-scratch/terraform-provider-k8s/internal/provider/tf"
)

// Protection is the argument deletion_protection. The state decides, not the configuration: an
// object is protected until an apply has turned the protection off.
const Protection = "deletion_protection"

func ProtectionAttribute() schema.BoolAttribute {
	return schema.BoolAttribute{
		Optional: true,
		MarkdownDescription: "Whether a plan that destroys or replaces this is refused, also with `-replace`. A plan does not see that an object is tainted: then the apply refuses to " +
			"destroy it. To destroy it, set this to `false`, apply, and then destroy. Changed in place; nothing else is done. Default: `false`.",
	}
}

// ending is how a plan ends an object.
type ending string

const (
	Stays    ending = ""
	destroys ending = "destroys"
	replaces ending = "replaces"
)

// protectedKey is the private-state entry that says, within one plan, that the object is protected.
// Terraform plans a replacement by -replace as the creation of a new object, with the planned
// private state of the old one. A new object has none.
const protectedKey = "protected"

// PlannedEnd returns how a plan ends the object in the state, and refuses to if the object is
// protected. what names the object. It is called at the end of ModifyPlan, when resp has the
// attributes that ModifyPlan itself says replace the object.
func PlannedEnd(ctx context.Context, what string, req resource.ModifyPlanRequest, resp *resource.ModifyPlanResponse) ending {
	diags := &resp.Diagnostics
	if req.State.Raw.IsNull() {
		if req.Private != nil && tf.ReadPrivate[bool](ctx, req.Private, protectedKey, diags) {
			refuseEnd(what, "replaces", diags)
		}
		return Stays
	}
	protected := isProtected(ctx, req.State)
	if resp.Private != nil && !req.Plan.Raw.IsNull() {
		tf.WritePrivate(ctx, resp.Private, protectedKey, protected, diags)
	}
	end := Stays
	switch {
	case req.Plan.Raw.IsNull():
		end = destroys
	case len(resp.RequiresReplace) > 0 || len(tf.Replacing(ctx, req, diags)) > 0:
		end = replaces
	}
	if end != Stays && protected {
		refuseEnd(what, string(end), diags)
	}
	return end
}

// refuseEnd adds the error about an object that is protected.
func refuseEnd(what, verb string, diags *diag.Diagnostics) {
	diags.AddAttributeError(path.Root(Protection), Upper(what)+" is protected from deletion",
		fmt.Sprintf("This plan %s %s, which was last applied with deletion_protection = true.\n\n"+
			"If that is what you want, set deletion_protection = false, apply, and plan this again. Nothing was changed.", verb, what))
}

// MayDelete reports whether an object may be deleted, and adds an error if it may not. What a plan
// does not know gets here: a tainted object.
func MayDelete(ctx context.Context, what string, state tfsdk.State, diags *diag.Diagnostics) bool {
	if !isProtected(ctx, state) {
		return true
	}
	diags.AddError(Upper(what)+" is protected from deletion", fmt.Sprintf("It was last applied with deletion_protection = true, so it was not deleted.\n\n"+
		"A tainted object is replaced by the next apply: run terraform untaint to keep %s. If it is to be deleted, untaint it, set deletion_protection = false, apply, and then "+
		"destroy or replace it.", what))
	return false
}

func isProtected(ctx context.Context, state tfsdk.State) bool {
	if _, unknown := state.Schema.AttributeAtPath(ctx, path.Root(Protection)); unknown.HasError() {
		return false
	}
	var on types.Bool
	return !state.GetAttribute(ctx, path.Root(Protection), &on).HasError() && on.ValueBool()
}

// OnlyProtection reports whether an update changes nothing but deletion_protection, so that there
// is nothing to do except to remember it.
func OnlyProtection(req resource.UpdateRequest) bool {
	var plan, state map[string]tftypes.Value
	if req.Plan.Raw.As(&plan) != nil || req.State.Raw.As(&state) != nil {
		return false
	}
	for name, v := range plan {
		if name != Protection && !v.Equal(state[name]) {
			return false
		}
	}
	_, there := plan[Protection]
	return there
}

// Upper returns s with a capital letter.
func Upper(s string) string { return strings.ToUpper(s[:1]) + s[1:] }

// ObjectName names an object in messages: its kind and the value of an attribute that identifies
// it, from the state or, without one, from the plan.
func ObjectName(ctx context.Context, kind, attribute string, state tfsdk.State, plan tfsdk.Plan) string {
	var name types.String
	switch {
	case !state.Raw.IsNull():
		state.GetAttribute(ctx, path.Root(attribute), &name)
	case !plan.Raw.IsNull():
		plan.GetAttribute(ctx, path.Root(attribute), &name)
	}
	return strings.TrimSpace(kind + " " + name.ValueString())
}

// Counted returns a number and its noun: "1 object", "12345 objects".
func Counted(n int64, noun string) string {
	if n == 1 {
		return "1 " + noun
	}
	return fmt.Sprintf("%d %ss", n, noun)
}
