package providertest

import (
	"math/big"
	"strconv"

	"github.com/hashicorp/terraform-plugin-go/tftypes"
)

// Build returns a value of a type. Missing parts are null.
func Build(t tftypes.Type, v any) tftypes.Value {
	if v == Unknown {
		return tftypes.NewValue(t, tftypes.UnknownValue)
	}
	if v == nil {
		return tftypes.NewValue(t, nil)
	}
	switch t := t.(type) {
	case tftypes.Object:
		m := v.(Values)
		out := map[string]tftypes.Value{}
		for name, at := range t.AttributeTypes {
			out[name] = Build(at, m[name])
		}
		return tftypes.NewValue(t, out)
	case tftypes.Map:
		out := map[string]tftypes.Value{}
		for k, e := range v.(Values) {
			out[k] = Build(t.ElementType, e)
		}
		return tftypes.NewValue(t, out)
	case tftypes.List:
		return tftypes.NewValue(t, elements(t.ElementType, v))
	case tftypes.Set:
		return tftypes.NewValue(t, elements(t.ElementType, v))
	}
	if t.Is(tftypes.DynamicPseudoType) {
		return Literal(v)
	}
	if s, ok := v.(string); ok && t.Is(tftypes.Number) { // in the form that plain writes
		n, _ := new(big.Float).SetString(s)
		return tftypes.NewValue(t, n)
	}
	return tftypes.NewValue(t, v)
}

func elements(t tftypes.Type, v any) []tftypes.Value {
	out := []tftypes.Value{}
	for _, e := range v.([]any) {
		out = append(out, Build(t, e))
	}
	return out
}

// Literal returns the value that Terraform has for a literal in HCL.
func Literal(v any) tftypes.Value {
	switch v := v.(type) {
	case Values:
		typ, members := tftypes.Object{AttributeTypes: map[string]tftypes.Type{}}, map[string]tftypes.Value{}
		for name, below := range v {
			members[name] = Build(tftypes.DynamicPseudoType, below)
			typ.AttributeTypes[name] = members[name].Type()
		}
		return tftypes.NewValue(typ, members)
	case []any:
		typ, elements := tftypes.Tuple{}, []tftypes.Value{}
		for _, below := range v {
			elements = append(elements, Build(tftypes.DynamicPseudoType, below))
			typ.ElementTypes = append(typ.ElementTypes, elements[len(elements)-1].Type())
		}
		return tftypes.NewValue(typ, elements)
	case string:
		return tftypes.NewValue(tftypes.String, v)
	case bool:
		return tftypes.NewValue(tftypes.Bool, v)
	case float64: // Terraform keeps more digits than a float64 has
		n, _, _ := big.ParseFloat(strconv.FormatFloat(v, 'g', -1, 64), 10, 512, big.ToNearestEven)
		return tftypes.NewValue(tftypes.Number, n)
	case tftypes.Value:
		return v
	}
	return tftypes.NewValue(tftypes.Number, v)
}

// Plain is the inverse of build.
func Plain(v tftypes.Value) any {
	if !v.IsKnown() {
		return Unknown
	}
	if v.IsNull() {
		return nil
	}
	t := v.Type()
	switch {
	case t.Is(tftypes.String):
		var s string
		_ = v.As(&s)
		return s
	case t.Is(tftypes.Bool):
		var b bool
		_ = v.As(&b)
		return b
	case t.Is(tftypes.Number):
		n := new(big.Float)
		_ = v.As(&n)
		return n.Text('f', -1)
	case t.Is(tftypes.Object{}), t.Is(tftypes.Map{}):
		m, out := map[string]tftypes.Value{}, Values{}
		_ = v.As(&m)
		for k, e := range m {
			out[k] = Plain(e)
		}
		return out
	default:
		l, out := []tftypes.Value{}, []any{}
		_ = v.As(&l)
		for _, e := range l {
			out = append(out, Plain(e))
		}
		return out
	}
}
