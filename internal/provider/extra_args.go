package provider

import (
	"context"
	"fmt"
	"strings"

	"github.com/hashicorp/terraform-plugin-framework/attr"
	"github.com/hashicorp/terraform-plugin-framework/resource/schema"
	"github.com/hashicorp/terraform-plugin-framework/schema/validator"
	"github.com/hashicorp/terraform-plugin-framework/types"

	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/component"
	"github.com/k8s-from-scratch/terraform-provider-k8s/internal/provider/tf"
)

// programList is a list of programs whose flags `extra_args` takes.
type programList []string

// argsName returns a program's attribute in `extra_args`, such as kube_apiserver.
func argsName(program string) string { return strings.ReplaceAll(program, "-", "_") }

// attribute returns the argument `extra_args`: flags by program.
func (p programList) attribute() schema.SingleNestedAttribute {
	out := schema.SingleNestedAttribute{
		Optional: true, Attributes: map[string]schema.Attribute{}, Validators: []validator.Object{flagNames(p)},
		MarkdownDescription: "Additional flags by program: name without leading dashes to value. They override the provider's flags. A flag or value that a program refuses is " +
			"found before anything is stopped. Default: none.",
	}
	for _, program := range p {
		out.Attributes[argsName(program)] = schema.MapAttribute{
			Optional: true, ElementType: types.StringType,
			MarkdownDescription: fmt.Sprintf("Flags of %s. A change restarts it, one machine at a time. Default: none.", program),
		}
	}
	return out
}

// value is the inverse of extraArgs. It is null if no program has flags. If a flag is repeated, the
// last value counts.
func (p programList) value(found map[string]component.Args) types.Object {
	typs, values, given := map[string]attr.Type{}, map[string]attr.Value{}, false
	for _, program := range p {
		flags := map[string]string{}
		for name, v := range found[program] {
			flags[name] = v[len(v)-1]
		}
		value := types.MapNull(types.StringType)
		if len(flags) > 0 {
			value, given = tf.StringMapValue(flags), true
		}
		typs[argsName(program)], values[argsName(program)] = types.MapType{ElemType: types.StringType}, value
	}
	if !given {
		return types.ObjectNull(typs)
	}
	return types.ObjectValueMust(typs, values)
}

// extraArgs returns the flags of one program in `extra_args`. An unknown value is empty.
func extraArgs(o types.Object, program string) component.Args {
	flags, _ := o.Attributes()[argsName(program)].(types.Map)
	var out component.Args
	for name, v := range flags.Elements() {
		if v, ok := v.(types.String); ok && !v.IsNull() {
			if out == nil {
				out = component.Args{}
			}
			out[name] = []string{v.ValueString()}
		}
	}
	return out
}

// flagNames validates that flags are named without leading dashes.
type flagNames programList

func (flagNames) Description(context.Context) string {
	return "names of flags without leading dashes"
}
func (f flagNames) MarkdownDescription(ctx context.Context) string { return f.Description(ctx) }

func (f flagNames) ValidateObject(_ context.Context, req validator.ObjectRequest, resp *validator.ObjectResponse) {
	for _, program := range f {
		for _, e := range component.CheckArgs(program, extraArgs(req.ConfigValue, program)) {
			at, detail := fieldPath(e.Field, e.Err.Error())
			resp.Diagnostics.AddAttributeError(at, e.Problem, detail)
		}
	}
}
