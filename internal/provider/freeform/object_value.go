// Package freeform contains attributes that take objects with any fields, such as kubelet_config,
// whose fields a program defines and not this provider. Terraform sees them as dynamic values. The
// package has the attribute, its validators, and the conversion to Go's maps and back.
//
// It does not know what the fields mean, and imports no other package of this repository.
package freeform

import (
	"bytes"
	"encoding/json"
	"fmt"
	"math/big"
	"strconv"

	"github.com/hashicorp/terraform-plugin-framework/attr"
	"github.com/hashicorp/terraform-plugin-framework/types"
)

// Map converts an object to a map: objects and maps become map[string]any, lists, tuples and sets
// []any, whole numbers int64, other numbers float64, and null nil. If there is no object, the map
// is nil and known is true. known is false if any part of the object is unknown.
func Map(v types.Dynamic) (m map[string]any, known bool) {
	plain, known := toGo(v)
	m, _ = plain.(map[string]any)
	return m, known
}

// Members returns the members of an object or map, which may be unknown themselves; nil if there is
// none, or if it is unknown as a whole.
func Members(v types.Dynamic) map[string]attr.Value {
	switch v := v.UnderlyingValue().(type) {
	case types.Object:
		return v.Attributes()
	case types.Map:
		return v.Elements()
	}
	return nil
}

// Text is a value that is written as text: a string, number or boolean, "4", "true".
func Text(v attr.Value) (text string, ok bool) {
	switch v := v.(type) {
	case types.Dynamic:
		return Text(v.UnderlyingValue())
	case types.String:
		return v.ValueString(), true
	case types.Bool:
		return strconv.FormatBool(v.ValueBool()), true
	case types.Number:
		return v.ValueBigFloat().Text('f', -1), true
	}
	return "", false
}

// Elements returns the elements of a list, tuple or set, and whether v is one.
func Elements(v attr.Value) ([]attr.Value, bool) {
	switch v := v.(type) {
	case types.Dynamic:
		return Elements(v.UnderlyingValue())
	case types.List:
		return v.Elements(), true
	case types.Tuple:
		return v.Elements(), true
	case types.Set:
		return v.Elements(), true
	}
	return nil, false
}

// Value is the inverse of Map: it returns the value that Terraform has for the same object written
// in HCL. A nil map becomes null. Everything that JSON can represent is accepted.
func Value(m map[string]any) (types.Dynamic, error) {
	if m == nil {
		return types.DynamicNull(), nil
	}
	raw, err := json.Marshal(m)
	if err != nil {
		return types.DynamicNull(), err
	}
	decoder := json.NewDecoder(bytes.NewReader(raw))
	decoder.UseNumber()
	var plain any
	if err := decoder.Decode(&plain); err != nil {
		return types.DynamicNull(), err
	}
	v, _, err := fromJSON(plain)
	if err != nil {
		return types.DynamicNull(), err
	}
	return types.DynamicValue(v), nil
}

func toGo(v attr.Value) (plain any, known bool) {
	if v == nil || v.IsNull() {
		return nil, true
	}
	if v.IsUnknown() {
		return nil, false
	}
	switch v := v.(type) {
	case types.Dynamic:
		return toGo(v.UnderlyingValue())
	case types.Object:
		return goMap(v.Attributes())
	case types.Map:
		return goMap(v.Elements())
	case types.List:
		return goList(v.Elements())
	case types.Tuple:
		return goList(v.Elements())
	case types.Set:
		return goList(v.Elements())
	case types.Number:
		return goNumber(v.ValueBigFloat()), true
	case types.Bool:
		return v.ValueBool(), true
	case types.String:
		return v.ValueString(), true
	}
	panic(fmt.Sprintf("Terraform has no value of the type %T", v))
}

func goMap(members map[string]attr.Value) (any, bool) {
	out, all := make(map[string]any, len(members)), true
	for name, v := range members {
		plain, known := toGo(v)
		out[name], all = plain, all && known
	}
	return out, all
}

func goList(elements []attr.Value) (any, bool) {
	out, all := make([]any, 0, len(elements)), true
	for _, v := range elements {
		plain, known := toGo(v)
		out, all = append(out, plain), all && known
	}
	return out, all
}

// goNumber returns whole numbers as int64, as JSON does. As a float64, a large one would be written
// to a configuration file as another number.
func goNumber(n *big.Float) any {
	if i, exact := n.Int64(); exact == big.Exact {
		return i
	}
	f, _ := n.Float64()
	return f
}

// numberBits is the precision with which Terraform reads numbers.
const numberBits = 512

// fromJSON returns Terraform's value and type for a decoded JSON value.
func fromJSON(plain any) (attr.Value, attr.Type, error) {
	switch v := plain.(type) {
	case nil:
		return types.DynamicNull(), types.DynamicType, nil
	case map[string]any:
		typs, values := make(map[string]attr.Type, len(v)), make(map[string]attr.Value, len(v))
		for name, below := range v {
			var err error
			if values[name], typs[name], err = fromJSON(below); err != nil {
				return nil, nil, err
			}
		}
		return types.ObjectValueMust(typs, values), types.ObjectType{AttrTypes: typs}, nil
	case []any:
		typs, values := make([]attr.Type, len(v)), make([]attr.Value, len(v))
		for i, below := range v {
			var err error
			if values[i], typs[i], err = fromJSON(below); err != nil {
				return nil, nil, err
			}
		}
		return types.TupleValueMust(typs, values), types.TupleType{ElemTypes: typs}, nil
	case bool:
		return types.BoolValue(v), types.BoolType, nil
	case string:
		return types.StringValue(v), types.StringType, nil
	case json.Number:
		n, _, err := big.ParseFloat(v.String(), 10, numberBits, big.ToNearestEven)
		return types.NumberValue(n), types.NumberType, err
	}
	panic(fmt.Sprintf("JSON has no %T", plain))
}
