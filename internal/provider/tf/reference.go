package tf

import (
	"context"
	"fmt"

	"github.com/hashicorp/terraform-plugin-framework/attr"
	"github.com/hashicorp/terraform-plugin-framework/diag"
	"github.com/hashicorp/terraform-plugin-framework/resource/schema"
	"github.com/hashicorp/terraform-plugin-framework/types"
)

// Reference is an object that one resource outputs and others take as input. It is declared once,
// by its attributes as an input. M is its model: a struct with a field for each attribute.
type Reference[M any] struct {
	attributes map[string]schema.Attribute
	typ        types.ObjectType
}

// NewReference declares a reference by its attributes as an input.
func NewReference[M any](attributes map[string]schema.Attribute) Reference[M] {
	typ := types.ObjectType{AttrTypes: map[string]attr.Type{}}
	for name, a := range attributes {
		typ.AttrTypes[name] = a.GetType()
	}
	return Reference[M]{attributes, typ}
}

// Type returns the object type of the reference.
func (r Reference[M]) Type() types.ObjectType { return r.typ }

// Input returns a required argument that takes the reference.
func (r Reference[M]) Input(description string) schema.SingleNestedAttribute {
	return schema.SingleNestedAttribute{Required: true, MarkdownDescription: description, Attributes: r.attributes}
}

// Optional returns an argument that takes the reference, and may be left out.
func (r Reference[M]) Optional(description string) schema.SingleNestedAttribute {
	return schema.SingleNestedAttribute{Optional: true, MarkdownDescription: description, Attributes: r.attributes}
}

// Inputs returns a required argument that takes a list of references.
func (r Reference[M]) Inputs(description string) schema.ListNestedAttribute {
	return schema.ListNestedAttribute{
		Required: true, MarkdownDescription: description,
		NestedObject: schema.NestedAttributeObject{Attributes: r.attributes},
	}
}

// Output returns a computed attribute that holds the reference.
func (r Reference[M]) Output(description string) schema.SingleNestedAttribute {
	return schema.SingleNestedAttribute{Computed: true, MarkdownDescription: description, Attributes: outputs(r.attributes)}
}

// Outputs returns a computed attribute that holds a list of references.
func (r Reference[M]) Outputs(description string) schema.ListNestedAttribute {
	return schema.ListNestedAttribute{
		Computed: true, MarkdownDescription: description,
		NestedObject: schema.NestedAttributeObject{Attributes: outputs(r.attributes)},
	}
}

// Value converts a model to an object. It panics if the model does not fit the declared attributes.
func (r Reference[M]) Value(ctx context.Context, m M) types.Object {
	o, diags := types.ObjectValueFrom(ctx, r.typ.AttrTypes, m)
	if diags.HasError() {
		panic(fmt.Sprintf("%T is no model of the reference: %v", m, diags))
	}
	return o
}

// Unknown returns the unknown value of the reference.
func (r Reference[M]) Unknown() types.Object { return types.ObjectUnknown(r.typ.AttrTypes) }

// Read is [Object] for the reference's model.
func (r Reference[M]) Read(ctx context.Context, o types.Object, diags *diag.Diagnostics) (M, bool) {
	return Object[M](ctx, o, diags)
}

// outputs returns the attributes as computed attributes.
func outputs(attributes map[string]schema.Attribute) map[string]schema.Attribute {
	out := map[string]schema.Attribute{}
	for name, a := range attributes {
		out[name] = output(a)
	}
	return out
}

func output(a schema.Attribute) schema.Attribute {
	switch a := a.(type) {
	case schema.StringAttribute:
		a.Required, a.Optional, a.Computed, a.Validators = false, false, true, nil
		return a
	case schema.BoolAttribute:
		a.Required, a.Optional, a.Computed, a.Validators = false, false, true, nil
		return a
	case schema.Int64Attribute:
		a.Required, a.Optional, a.Computed, a.Validators = false, false, true, nil
		return a
	case schema.ListAttribute:
		a.Required, a.Optional, a.Computed, a.Validators = false, false, true, nil
		return a
	case schema.SetAttribute:
		a.Required, a.Optional, a.Computed, a.Validators = false, false, true, nil
		return a
	case schema.MapAttribute:
		a.Required, a.Optional, a.Computed, a.Validators = false, false, true, nil
		return a
	case schema.SingleNestedAttribute:
		a.Required, a.Optional, a.Computed, a.Validators = false, false, true, nil
		a.Attributes = outputs(a.Attributes)
		return a
	case schema.ListNestedAttribute:
		a.Required, a.Optional, a.Computed, a.Validators = false, false, true, nil
		a.NestedObject = schema.NestedAttributeObject{Attributes: outputs(a.NestedObject.Attributes)}
		return a
	}
	panic(fmt.Sprintf("a reference cannot have a %T", a))
}
