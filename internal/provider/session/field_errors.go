package session

import (
	"context"
	"strings"

	"github.com/hashicorp/terraform-plugin-framework/attr"
	"github.com/hashicorp/terraform-plugin-framework/diag"
	"github.com/hashicorp/terraform-plugin-framework/path"
	"github.com/hashicorp/terraform-plugin-framework/tfsdk"

	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/invalid"
	"github.com/k8s-from-scratch/terraform-provider-k8s/internal/provider/tf"
)

// AddFieldErrors adds the errors of a specification's fields to the attributes of the same names. A
// field is not missing if the attribute is only unknown.
func AddFieldErrors(ctx context.Context, plan tfsdk.Plan, errs invalid.Fields, diags *diag.Diagnostics) {
	for _, e := range errs {
		at, detail := FieldPath(e.Field, e.Err.Error())
		if e.Missing {
			var v attr.Value
			if d := plan.GetAttribute(ctx, tf.Path(e.Field), &v); !d.HasError() && v != nil && v.IsUnknown() {
				continue
			}
		}
		diags.AddAttributeError(at, e.Problem, detail)
	}
}

// FieldPath returns the path of a field and the detail of an error there. Terraform shows the
// source line of an argument, and of an item of one, but of nothing below it. So the path is not
// longer. What is below an item of an object, the detail names.
func FieldPath(field, detail string) (path.Path, string) {
	whole := tf.Path(field)
	steps := whole.Steps()
	if len(steps) < 2 {
		return whole, detail
	}
	at := path.Root(argumentOf(field))
	switch item := steps[1].(type) {
	case path.PathStepElementKeyInt:
		return at.AtListIndex(int(item)), detail
	case path.PathStepElementKeyString:
		return at.AtMapKey(string(item)), detail
	case path.PathStepAttributeName:
		at = at.AtMapKey(string(item))
	}
	if len(steps) > 2 {
		detail = field + ": " + detail
	}
	return at, detail
}

// argumentOf returns the argument of a field.
func argumentOf(field string) string {
	if i := strings.IndexAny(field, ".["); i >= 0 {
		return field[:i]
	}
	return field
}
