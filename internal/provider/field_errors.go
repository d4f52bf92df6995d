package provider

import (
	"context"
	"fmt"
	"strings"

	"github.com/hashicorp/terraform-plugin-framework/attr"
	"github.com/hashicorp/terraform-plugin-framework/diag"
	"github.com/hashicorp/terraform-plugin-framework/path"
	"github.com/hashicorp/terraform-plugin-framework/tfsdk"

	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/invalid"
	"github.com/k8s-from-scratch/terraform-provider-k8s/internal/provider/tf"
)

// addFieldErrors adds the errors of a specification's fields to the attributes of the same names. A
// field is not missing if the attribute is only unknown.
func addFieldErrors(ctx context.Context, plan tfsdk.Plan, errs invalid.Fields, diags *diag.Diagnostics) {
	for _, e := range errs {
		at, detail := fieldPath(e.Field, e.Err.Error())
		if e.Missing {
			var v attr.Value
			if d := plan.GetAttribute(ctx, at, &v); !d.HasError() && v != nil && v.IsUnknown() {
				continue
			}
		}
		diags.AddAttributeError(at, e.Problem, detail)
	}
}

// fieldPath returns the path of a field and the detail of an error there. Terraform shows the
// source line of an item of an argument, but of nothing below it. So the path of a flag is that of
// its program, and the detail names the flag.
func fieldPath(field, detail string) (path.Path, string) {
	below, isFlag := strings.CutPrefix(field, "extra_args.")
	if !isFlag {
		return tf.Path(field), detail
	}
	program, _, _ := strings.Cut(below, "[")
	return path.Root("extra_args").AtMapKey(program), fmt.Sprintf("%s: %s", field, detail)
}
