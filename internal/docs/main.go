// Command docs writes the provider's schemas to standard output, in the form of `terraform providers schema -json` of
// the newest Terraform, whatever CLI is installed. The generator of docs/ reads them.
package main

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"strings"

	"github.com/hashicorp/terraform-plugin-go/tfprotov6"
	"github.com/hashicorp/terraform-plugin-go/tftypes"

	"github.com/k8s-from-scratch/terraform-provider-k8s/internal/provider"
)

// address is the only one under which the generator looks for a provider named k8s.
const address = "registry.terraform.io/hashicorp/k8s"

func main() {
	out, err := schemas(context.Background())
	if err == nil {
		err = json.NewEncoder(os.Stdout).Encode(map[string]any{"format_version": "1.0", "provider_schemas": map[string]any{address: out}})
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

// object is an object of JSON. Whatever is nil is not written.
type object map[string]any

func (o object) MarshalJSON() ([]byte, error) {
	out := map[string]any{}
	for name, v := range o {
		if v != nil && v != "" && v != false {
			out[name] = v
		}
	}
	return json.Marshal(out)
}

func schemas(ctx context.Context) (object, error) {
	p := provider.New("docs")
	defer func() { _ = p.Close() }()
	server := provider.Server(p)
	all, err := server.GetProviderSchema(ctx, &tfprotov6.GetProviderSchemaRequest{})
	if err != nil {
		return nil, err
	}
	identities, err := server.GetResourceIdentitySchemas(ctx, &tfprotov6.GetResourceIdentitySchemasRequest{})
	if err != nil {
		return nil, err
	}
	for _, d := range append(all.Diagnostics, identities.Diagnostics...) {
		if d.Severity == tfprotov6.DiagnosticSeverityError {
			return nil, fmt.Errorf("%s: %s", d.Summary, d.Detail)
		}
	}
	return object{
		"provider":                   schemaOf(all.Provider),
		"resource_schemas":           each(all.ResourceSchemas, schemaOf),
		"data_source_schemas":        each(all.DataSourceSchemas, schemaOf),
		"ephemeral_resource_schemas": each(all.EphemeralResourceSchemas, schemaOf),
		"list_resource_schemas":      each(all.ListResourceSchemas, schemaOf),
		"action_schemas":             each(all.ActionSchemas, func(a *tfprotov6.ActionSchema) object { return schemaOf(a.Schema) }),
		"functions":                  each(all.Functions, functionOf),
		"resource_identity_schemas":  each(identities.IdentitySchemas, identityOf),
	}, nil
}

func each[T any](all map[string]T, of func(T) object) object {
	out := object{}
	for name, v := range all {
		out[name] = of(v)
	}
	return out
}

// named is each for a list.
func named[T any](all []T, name func(T) string, of func(T) object) object {
	out := object{}
	for _, v := range all {
		out[name(v)] = of(v)
	}
	return out
}

func schemaOf(s *tfprotov6.Schema) object {
	return object{"version": s.Version, "block": blockOf(s.Block)}
}

func blockOf(b *tfprotov6.SchemaBlock) object {
	return described(object{
		"attributes":  attributesOf(b.Attributes),
		"block_types": named(b.BlockTypes, func(b *tfprotov6.SchemaNestedBlock) string { return b.TypeName }, nestedOf),
		"deprecated":  b.Deprecated,
	}, b.Description, b.DescriptionKind)
}

func nestedOf(b *tfprotov6.SchemaNestedBlock) object {
	return object{"nesting_mode": strings.ToLower(b.Nesting.String()), "block": blockOf(b.Block), "min_items": b.MinItems, "max_items": b.MaxItems}
}

func attributesOf(all []*tfprotov6.SchemaAttribute) object {
	return named(all, func(a *tfprotov6.SchemaAttribute) string { return a.Name }, attributeOf)
}

func attributeOf(a *tfprotov6.SchemaAttribute) object {
	out := described(object{
		"required": a.Required, "optional": a.Optional, "computed": a.Computed,
		"sensitive": a.Sensitive, "write_only": a.WriteOnly, "deprecated": a.Deprecated,
	}, a.Description, a.DescriptionKind)
	if a.NestedType != nil {
		out["nested_type"] = object{"nesting_mode": strings.ToLower(a.NestedType.Nesting.String()), "attributes": attributesOf(a.NestedType.Attributes)}
		return out
	}
	out["type"] = typeOf(a.Type)
	return out
}

func described(o object, text string, kind tfprotov6.StringKind) object {
	o["description"], o["description_kind"] = text, strings.ToLower(kind.String())
	return o
}

func functionOf(f *tfprotov6.Function) object {
	out := object{"summary": f.Summary, "description": f.Description, "deprecation_message": f.DeprecationMessage, "return_type": typeOf(f.Return.Type)}
	var parameters []object
	for _, p := range f.Parameters {
		parameters = append(parameters, parameterOf(p))
	}
	out["parameters"] = parameters
	if f.VariadicParameter != nil {
		out["variadic_parameter"] = parameterOf(f.VariadicParameter)
	}
	return out
}

func parameterOf(p *tfprotov6.FunctionParameter) object {
	return object{"name": p.Name, "description": p.Description, "is_nullable": p.AllowNullValue, "type": typeOf(p.Type)}
}

func identityOf(s *tfprotov6.ResourceIdentitySchema) object {
	return object{"version": s.Version, "attributes": named(s.IdentityAttributes, func(a *tfprotov6.ResourceIdentitySchemaAttribute) string { return a.Name },
		func(a *tfprotov6.ResourceIdentitySchemaAttribute) object {
			return object{"type": typeOf(a.Type), "description": a.Description, "required_for_import": a.RequiredForImport, "optional_for_import": a.OptionalForImport}
		})}
}

// typeOf returns a type as cty writes it.
func typeOf(t tftypes.Type) json.RawMessage {
	raw, err := t.MarshalJSON() //nolint:staticcheck // there is no other way to write a type
	if err != nil {
		panic(err)
	}
	return raw
}
