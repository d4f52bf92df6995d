package provider

import (
	"math/big"
	"strconv"
	"testing"

	"github.com/hashicorp/terraform-plugin-go/tftypes"
)

// Conversion of Terraform's values to and from the types of JSON.

// build returns a value of a type. Missing parts are null.
func build(t tftypes.Type, v any) tftypes.Value {
	if v == unknown {
		return tftypes.NewValue(t, tftypes.UnknownValue)
	}
	if v == nil {
		return tftypes.NewValue(t, nil)
	}
	switch t := t.(type) {
	case tftypes.Object:
		m := v.(values)
		out := map[string]tftypes.Value{}
		for name, at := range t.AttributeTypes {
			out[name] = build(at, m[name])
		}
		return tftypes.NewValue(t, out)
	case tftypes.Map:
		out := map[string]tftypes.Value{}
		for k, e := range v.(values) {
			out[k] = build(t.ElementType, e)
		}
		return tftypes.NewValue(t, out)
	case tftypes.List:
		return tftypes.NewValue(t, elements(t.ElementType, v))
	case tftypes.Set:
		return tftypes.NewValue(t, elements(t.ElementType, v))
	}
	if t.Is(tftypes.DynamicPseudoType) {
		return literal(v)
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
		out = append(out, build(t, e))
	}
	return out
}

// literal returns the value that Terraform has for a literal in HCL.
func literal(v any) tftypes.Value {
	switch v := v.(type) {
	case values:
		typ, members := tftypes.Object{AttributeTypes: map[string]tftypes.Type{}}, map[string]tftypes.Value{}
		for name, below := range v {
			members[name] = build(tftypes.DynamicPseudoType, below)
			typ.AttributeTypes[name] = members[name].Type()
		}
		return tftypes.NewValue(typ, members)
	case []any:
		typ, elements := tftypes.Tuple{}, []tftypes.Value{}
		for _, below := range v {
			elements = append(elements, build(tftypes.DynamicPseudoType, below))
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

// plain is the inverse of build.
func plain(v tftypes.Value) any {
	if !v.IsKnown() {
		return unknown
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
		m, out := map[string]tftypes.Value{}, values{}
		_ = v.As(&m)
		for k, e := range m {
			out[k] = plain(e)
		}
		return out
	default:
		l, out := []tftypes.Value{}, []any{}
		_ = v.As(&l)
		for _, e := range l {
			out = append(out, plain(e))
		}
		return out
	}
}

// TestSameYAML: comments, order and spelling do not count; a field said twice, of which one reader
// takes the first and another the last, does.
func TestSameYAML(t *testing.T) {
	const policy = "kind: Policy\nrules:\n- level: Metadata\n"
	for text, want := range map[string]bool{
		policy: true,
		"# all of it\nrules: [{level: Metadata}]\nkind: Policy\n":  true,
		"kind: Policy\nrules:\n- level: None\n":                    false,
		"kind: Policy\nrules:\n- level: None\n  level: Metadata\n": false,
		"rules: []\n" + policy:                                     false,
		"kind: [":                                                  false,
	} {
		if sameYAML(policy, text) != want || sameYAML(text, policy) != want {
			t.Errorf("%q is the same: %t, wanted %t", text, !want, want)
		}
	}
}
