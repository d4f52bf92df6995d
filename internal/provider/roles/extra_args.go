package roles

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/hashicorp/terraform-plugin-framework/attr"
	"github.com/hashicorp/terraform-plugin-framework/path"
	"github.com/hashicorp/terraform-plugin-framework/resource/schema"
	"github.com/hashicorp/terraform-plugin-framework/schema/validator"
	"github.com/hashicorp/terraform-plugin-framework/types"

	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/component"
	"github.com/k8s-from-scratch/terraform-provider-k8s/internal/provider/freeform"
	"github.com/k8s-from-scratch/terraform-provider-k8s/internal/provider/session"
)

// programList is a list of programs whose flags `extra_args` takes.
type programList []string

// argsName returns a program's attribute in `extra_args`, such as kube_apiserver.
func argsName(program string) string { return strings.ReplaceAll(program, "-", "_") }

// attribute returns the argument `extra_args`: flags by program.
func (p programList) attribute() schema.SingleNestedAttribute {
	out := schema.SingleNestedAttribute{
		Optional: true, Attributes: map[string]schema.Attribute{}, Validators: []validator.Object{flagNames(p)},
		MarkdownDescription: "Additional flags by program: an object from the flag's name, without dashes, to its value. A value replaces the provider's value, a list gives the flag several times, " +
			"and `null` removes the provider's flag. Flags that connect the parts of the cluster are refused. Default: none.",
	}
	for _, program := range p {
		out.Attributes[argsName(program)] = freeform.Object(fmt.Sprintf("Flags of %s. A change restarts it, one machine at a time. Default: none.", program))
	}
	return out
}

// value is the inverse of extraArgs. It is null if no program has flags.
func (p programList) value(found map[string]component.Args) types.Object {
	typs, values, given := map[string]attr.Type{}, map[string]attr.Value{}, false
	for _, program := range p {
		var flags map[string]any
		for name, v := range found[program] {
			if flags == nil {
				flags, given = map[string]any{}, true
			}
			switch len(v) {
			case 0:
				flags[name] = nil
			case 1:
				flags[name] = v[0]
			default:
				flags[name] = v
			}
		}
		typs[argsName(program)], values[argsName(program)] = types.DynamicType, objectValue(flags)
	}
	if !given {
		return types.ObjectNull(typs)
	}
	return types.ObjectValueMust(typs, values)
}

// extraArgs returns the flags of one program in `extra_args`: null is a flag that is taken away,
// and an unknown value is empty.
func extraArgs(o types.Object, program string) component.Args {
	flags, _ := o.Attributes()[argsName(program)].(types.Dynamic)
	var out component.Args
	for name, v := range freeform.Members(flags) {
		if out == nil {
			out = component.Args{}
		}
		if v.IsNull() {
			out[name] = nil
			continue
		}
		list, isList := freeform.Elements(v)
		if !isList {
			list = []attr.Value{v}
		}
		for _, e := range list {
			text, _ := freeform.Text(e)
			out[name] = append(out[name], text)
		}
	}
	return out
}

// flagNames validates the flags of programs, as far as it is known.
type flagNames programList

func (flagNames) Description(context.Context) string {
	return "names of flags without leading dashes"
}
func (f flagNames) MarkdownDescription(ctx context.Context) string { return f.Description(ctx) }

func (f flagNames) ValidateObject(_ context.Context, req validator.ObjectRequest, resp *validator.ObjectResponse) {
	for _, program := range f {
		flags, _ := req.ConfigValue.Attributes()[argsName(program)].(types.Dynamic)
		members := freeform.Members(flags)
		for _, name := range slices.Sorted(maps.Keys(members)) {
			if !isFlagValue(members[name]) {
				resp.Diagnostics.AddAttributeError(path.Root("extra_args").AtMapKey(argsName(program)), "Unusable value of a flag",
					component.ArgField(program, name)+": a flag takes a value, a list of values, or null.")
			}
		}
		for _, e := range component.CheckArgs(program, extraArgs(req.ConfigValue, program)) {
			at, detail := session.FieldPath(e.Field, e.Err.Error())
			resp.Diagnostics.AddAttributeError(at, e.Problem, detail)
		}
	}
}

// isFlagValue reports whether a value is null, unknown, a text or a list of texts that is not
// empty.
func isFlagValue(v attr.Value) bool {
	if v.IsNull() || v.IsUnknown() {
		return true
	}
	if _, ok := freeform.Text(v); ok {
		return true
	}
	list, ok := freeform.Elements(v)
	for _, e := range list {
		if _, isText := freeform.Text(e); e.IsNull() || !isText && !e.IsUnknown() {
			return false
		}
	}
	return ok && len(list) > 0
}
