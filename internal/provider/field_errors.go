package provider

import (
	"context"
	"fmt"
	"strings"

	"github.com/hashicorp/terraform-plugin-framework/attr"
	"github.com/hashicorp/terraform-plugin-framework/diag"
	"github.com/hashicorp/terraform-plugin-framework/path"
	"github.com/hashicorp/terraform-plugin-framework/tfsdk"

	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/component"
	"github.com/k8s-from-scratch/terraform-provider-k8s/internal/provider/tf"
)

// placeErrors adds what is wrong with the fields of a specification to the
// attributes of the same names. What is merely not known yet is not missing.
func placeErrors(ctx context.Context, plan tfsdk.Plan, errs component.FieldErrors, diags *diag.Diagnostics) {
	for _, e := range errs {
		at, detail := placeOf(e.Field, e.Err.Error())
		if e.Missing {
			var v attr.Value
			if d := plan.GetAttribute(ctx, at, &v); !d.HasError() && v != nil && v.IsUnknown() {
				continue
			}
		}
		diags.AddAttributeError(at, e.Problem, detail)
	}
}

// placeOf returns the path of a field, and what to say there. Terraform shows the
// line of an item of an argument, but of nothing below it: so the path of a flag
// leads to its program, as an item, and the text names the flag.
func placeOf(field, detail string) (path.Path, string) {
	below, isFlag := strings.CutPrefix(field, "extra_args.")
	if !isFlag {
		return tf.Path(field), detail
	}
	program, _, _ := strings.Cut(below, "[")
	return path.Root("extra_args").AtMapKey(program), fmt.Sprintf("%s: %s", field, detail)
}
