package freeform

import (
	"context"
	"fmt"
	"maps"
	"reflect"
	"slices"

	"github.com/hashicorp/terraform-plugin-framework/attr"
	"github.com/hashicorp/terraform-plugin-framework/diag"
	"github.com/hashicorp/terraform-plugin-framework/path"
	"github.com/hashicorp/terraform-plugin-framework/resource/schema"
	"github.com/hashicorp/terraform-plugin-framework/resource/schema/planmodifier"
	"github.com/hashicorp/terraform-plugin-framework/schema/validator"
	"github.com/hashicorp/terraform-plugin-framework/types"
)

// Object is an optional argument that takes an object with any fields. Anything else is an error of
// the plan, including a string that contains JSON.
func Object(description string) schema.DynamicAttribute {
	return schema.DynamicAttribute{
		Optional: true, MarkdownDescription: description,
		Validators:    []validator.Dynamic{objectsOnly{}},
		PlanModifiers: []planmodifier.Dynamic{keepEquivalent{}},
	}
}

// Objects is Object for an object whose members are objects themselves.
func Objects(description string) schema.DynamicAttribute {
	a := Object(description)
	a.Validators = []validator.Dynamic{objectsOnly{members: true}}
	return a
}

// objectsOnly accepts only objects and maps.
type objectsOnly struct {
	members bool // the members must be objects as well
}

func (v objectsOnly) Description(context.Context) string {
	if v.members {
		return "an object of objects"
	}
	return "an object"
}
func (v objectsOnly) MarkdownDescription(ctx context.Context) string { return v.Description(ctx) }

func (v objectsOnly) ValidateDynamic(_ context.Context, req validator.DynamicRequest, resp *validator.DynamicResponse) {
	members, ok := membersOf(req.Path, req.ConfigValue, &resp.Diagnostics)
	if !ok || !v.members {
		return
	}
	for _, name := range slices.Sorted(maps.Keys(members)) {
		membersOf(req.Path.AtMapKey(name), members[name], &resp.Diagnostics)
	}
}

// membersOf returns the members of an object or map. It adds an error for any other value. Null and
// unknown values pass, and have no members.
func membersOf(at path.Path, v attr.Value, diags *diag.Diagnostics) (map[string]attr.Value, bool) {
	if dynamic, ok := v.(types.Dynamic); ok {
		if v = dynamic.UnderlyingValue(); v == nil {
			return nil, true
		}
	}
	switch v := v.(type) {
	case types.Object:
		return v.Attributes(), true
	case types.Map:
		return v.Elements(), true
	}
	if v.IsNull() {
		return nil, true
	}
	found, advice := "a list", "Write { name = value } instead of [ ... ]."
	switch v.(type) {
	case types.String:
		found, advice = "a string", "Write the object itself, without jsonencode; put jsondecode around text that is JSON."
	case types.Number:
		found, advice = "a number", "Write { name = value }."
	case types.Bool:
		found, advice = "true or false", "Write { name = value }."
	}
	diags.AddAttributeError(at, "Not an object", fmt.Sprintf("This argument takes an object such as { name = value }, but this is %s. %s", found, advice))
	return nil, false
}

// keepEquivalent plans the value of the state if the configured value means the same. Terraform
// distinguishes a list from a tuple and a map from an object; the files written from them do not.
type keepEquivalent struct{}

func (keepEquivalent) Description(context.Context) string {
	return "Another spelling of the same object is no change."
}
func (k keepEquivalent) MarkdownDescription(ctx context.Context) string { return k.Description(ctx) }

func (keepEquivalent) PlanModifyDynamic(_ context.Context, req planmodifier.DynamicRequest, resp *planmodifier.DynamicResponse) {
	before, known := Map(req.StateValue)
	after, alsoKnown := Map(req.PlanValue)
	if known && alsoKnown && before != nil && after != nil && reflect.DeepEqual(before, after) {
		resp.PlanValue = req.StateValue
	}
}
