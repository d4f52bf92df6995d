package freeform

import (
	"context"
	"encoding/json"
	"math"
	"math/big"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/hashicorp/terraform-plugin-framework/attr"
	"github.com/hashicorp/terraform-plugin-framework/diag"
	"github.com/hashicorp/terraform-plugin-framework/path"
	"github.com/hashicorp/terraform-plugin-framework/resource/schema/planmodifier"
	"github.com/hashicorp/terraform-plugin-framework/schema/validator"
	"github.com/hashicorp/terraform-plugin-framework/types"
	"github.com/hashicorp/terraform-plugin-go/tftypes"
)

// number returns a number with Terraform's precision.
func number(text string) types.Number {
	n, _, err := big.ParseFloat(text, 10, numberBits, big.ToNearestEven)
	if err != nil {
		panic(err)
	}
	return types.NumberValue(n)
}

// object returns an object as written in HCL.
func object(members map[string]attr.Value) types.Object {
	typs := map[string]attr.Type{}
	for name, v := range members {
		typs[name] = v.Type(context.Background())
	}
	return types.ObjectValueMust(typs, members)
}

func tuple(elements ...attr.Value) types.Tuple {
	var typs []attr.Type
	for _, v := range elements {
		typs = append(typs, v.Type(context.Background()))
	}
	return types.TupleValueMust(typs, elements)
}

// literals are Terraform values, each with its JSON.
var literals = map[string]struct {
	value attr.Value
	json  string
}{
	"whole number":     {number("80"), `80`},
	"negative":         {number("-998"), `-998`},
	"written with .0":  {number("80.0"), `80`},
	"large":            {number("9223372036854775807"), `9223372036854775807`},
	"beyond int64":     {number("10000000000000000000"), `10000000000000000000`},
	"fraction":         {number("0.1"), `0.1`},
	"small":            {number("0.0000001"), `1e-7`},
	"true":             {types.BoolValue(true), `true`},
	"string":           {types.StringValue("10s"), `"10s"`},
	"string of digits": {types.StringValue("80"), `"80"`},
	"empty string":     {types.StringValue(""), `""`},
	"null":             {types.DynamicNull(), `null`},
	"null of a type":   {types.StringNull(), `null`},
	"tuple":            {tuple(number("1"), types.StringValue("a")), `[1,"a"]`},
	"empty tuple":      {tuple(), `[]`},
	"list":             {types.ListValueMust(types.NumberType, []attr.Value{number("1"), number("2")}), `[1,2]`},
	"set":              {types.SetValueMust(types.StringType, []attr.Value{types.StringValue("a")}), `["a"]`},
	"map":              {types.MapValueMust(types.StringType, map[string]attr.Value{"memory.available": types.StringValue("100Mi")}), `{"memory.available":"100Mi"}`},
	"empty object":     {object(nil), `{}`},
	"nested":           {object(map[string]attr.Value{"b": object(map[string]attr.Value{"c": number("3")}), "a": tuple(object(nil), types.DynamicNull())}), `{"a":[{},null],"b":{"c":3}}`},
	"dynamic":          {types.DynamicValue(types.StringValue("x")), `"x"`},
}

// TestMap checks that Map returns the same value as decoding the object's jsonencode.
func TestMap(t *testing.T) {
	for name, test := range literals {
		m, known := Map(types.DynamicValue(object(map[string]attr.Value{"field": test.value})))
		got, err := json.Marshal(m)
		if want := `{"field":` + test.json + `}`; !known || err != nil || string(got) != want {
			t.Errorf("%s: got %s, %v, wanted %s", name, got, err, want)
		}
	}
	for name, v := range map[string]types.Dynamic{
		"null": types.DynamicNull(), "null of a type": types.DynamicValue(types.StringNull()), "null object": types.DynamicValue(types.ObjectNull(nil)),
	} {
		if m, known := Map(v); m != nil || !known {
			t.Errorf("%s: got %v, %t", name, m, known)
		}
	}
	if m, known := Map(types.DynamicValue(object(nil))); m == nil || !known {
		t.Error("an empty object counts as null")
	}
}

// TestWholeNumbers checks that YAML and TOML encoders see whole numbers without a fraction.
func TestWholeNumbers(t *testing.T) {
	m, _ := Map(types.DynamicValue(object(map[string]attr.Value{"a": number("80"), "b": number("0.5")})))
	if !reflect.DeepEqual(m, map[string]any{"a": int64(80), "b": 0.5}) {
		t.Errorf("got %#v", m)
	}
}

// TestUnknown checks that unknown values are found at any depth.
func TestUnknown(t *testing.T) {
	for name, v := range map[string]types.Dynamic{
		"all of it":          types.DynamicUnknown(),
		"of a type":          types.DynamicValue(types.ObjectUnknown(nil)),
		"a member":           types.DynamicValue(object(map[string]attr.Value{"a": number("1"), "b": types.NumberUnknown()})),
		"a member of a list": types.DynamicValue(object(map[string]attr.Value{"a": tuple(types.StringUnknown())})),
		"deep": types.DynamicValue(object(map[string]attr.Value{"a": types.MapValueMust(types.StringType, map[string]attr.Value{"b": types.StringUnknown()}),
			"c": types.DynamicUnknown()})),
	} {
		if _, known := Map(v); known {
			t.Errorf("%s is known", name)
		}
	}
	if m, _ := Map(types.DynamicValue(object(map[string]attr.Value{"PodSecurity": types.DynamicUnknown()}))); len(m) != 1 {
		t.Errorf("the names of members are lost: %v", m)
	}
}

// TestValue checks that an import produces the same value as the object written in HCL, so that
// Terraform sees no difference.
func TestValue(t *testing.T) {
	for name, test := range literals {
		var m map[string]any
		if err := json.Unmarshal([]byte(`{"field":`+test.json+`}`), &m); err != nil {
			t.Fatal(err)
		}
		v, err := Value(m)
		if err != nil {
			t.Errorf("%s: %s", name, err)
			continue
		}
		literal := types.DynamicValue(object(map[string]attr.Value{"field": test.value}))
		switch name {
		case "large": // JSON that was decoded into a float64 before
		case "null of a type", "list", "set", "map", "dynamic":
			if got := plan(v, literal); !got.Equal(v) {
				t.Errorf("%s: %v is not equivalent to %v", name, v, literal)
			}
		default:
			if !v.Equal(literal) {
				t.Errorf("%s: got %v, wanted %v", name, v, literal)
			}
		}
	}
	if v, err := Value(nil); err != nil || !v.IsNull() {
		t.Errorf("no object: %v, %v", v, err)
	}
	if _, err := Value(map[string]any{"a": math.Inf(1)}); err == nil {
		t.Error("infinity is taken")
	}
	v, err := Value(map[string]any{"number": int64(5), "when": time.Date(2026, 1, 2, 0, 0, 0, 0, time.UTC)}) // types that TOML decoders return
	if want := types.DynamicValue(object(map[string]attr.Value{"number": number("5"), "when": types.StringValue("2026-01-02T00:00:00Z")})); err != nil || !v.Equal(want) {
		t.Errorf("got %v, %v", v, err)
	}
}

// TestWire encodes values as Terraform does for state and plan, and decodes them again.
func TestWire(t *testing.T) {
	for name, test := range literals {
		before := types.DynamicValue(object(map[string]attr.Value{"field": test.value}))
		wire, err := before.ToTerraformValue(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		packed, err := wire.MarshalMsgPack(tftypes.DynamicPseudoType) //nolint:staticcheck // what the plugin protocol does
		if err != nil {
			t.Fatalf("%s: %s", name, err)
		}
		unpacked, err := tftypes.ValueFromMsgPack(packed, tftypes.DynamicPseudoType) //nolint:staticcheck // see above
		if err != nil {
			t.Fatalf("%s: %s", name, err)
		}
		after, err := types.DynamicType.ValueFromTerraform(t.Context(), unpacked)
		if err != nil {
			t.Fatalf("%s: %s", name, err)
		}
		if name != "dynamic" && !after.Equal(before) {
			t.Errorf("%s: %v became %v", name, before, after)
		}
		was, _ := Map(before)
		if is, known := Map(after.(types.Dynamic)); !known || !reflect.DeepEqual(was, is) {
			t.Errorf("%s: %v became %v", name, was, is)
		}
	}
}

// plan plans a configured value with a given state value.
func plan(state, config types.Dynamic) types.Dynamic {
	resp := planmodifier.DynamicResponse{PlanValue: config}
	keepEquivalent{}.PlanModifyDynamic(context.Background(), planmodifier.DynamicRequest{StateValue: state, ConfigValue: config, PlanValue: config}, &resp)
	return resp.PlanValue
}

// TestKeepEquivalent checks that an equivalent value is no change, and any other value is one.
func TestKeepEquivalent(t *testing.T) {
	of := func(v attr.Value) types.Dynamic {
		return types.DynamicValue(object(map[string]attr.Value{"field": v}))
	}
	list := of(types.ListValueMust(types.StringType, []attr.Value{types.StringValue("a")}))
	for name, test := range map[string]struct {
		state, config types.Dynamic
		kept          bool
	}{
		"a tuple for a list":      {list, of(tuple(types.StringValue("a"))), true},
		"another element":         {list, of(tuple(types.StringValue("b"))), false},
		"a map for an object":     {of(types.MapValueMust(types.StringType, map[string]attr.Value{"a": types.StringValue("x")})), of(object(map[string]attr.Value{"a": types.StringValue("x")})), true},
		"text for a number":       {of(number("1")), of(types.StringValue("1")), false},
		"null for nothing":        {of(types.DynamicNull()), types.DynamicValue(object(nil)), false},
		"an empty one for none":   {types.DynamicNull(), types.DynamicValue(object(nil)), false},
		"none for an empty one":   {types.DynamicValue(object(nil)), types.DynamicNull(), false},
		"not known yet":           {list, of(types.DynamicUnknown()), false},
		"nothing known yet":       {list, types.DynamicUnknown(), false},
		"a null of another type":  {of(types.StringNull()), of(types.DynamicNull()), true},
		"in another order, a set": {of(tuple(types.StringValue("a"), types.StringValue("b"))), of(tuple(types.StringValue("b"), types.StringValue("a"))), false},
	} {
		want := test.config
		if test.kept {
			want = test.state
		}
		if got := plan(test.state, test.config); !got.Equal(want) {
			t.Errorf("%s: planned is %v", name, got)
		}
	}
}

// TestObjectsOnly checks that the error is on the wrong member and says what to write.
func TestObjectsOnly(t *testing.T) {
	text := types.StringValue(`{"a":1}`)
	for name, test := range map[string]struct {
		value   types.Dynamic
		members bool
		at      string // "" if it passes
		want    string
	}{
		"object":               {types.DynamicValue(object(map[string]attr.Value{"a": text})), false, "", ""},
		"map":                  {types.DynamicValue(types.MapValueMust(types.StringType, nil)), false, "", ""},
		"null":                 {types.DynamicNull(), true, "", ""},
		"null of a type":       {types.DynamicValue(types.StringNull()), true, "", ""},
		"unknown":              {types.DynamicUnknown(), true, "", ""},
		"unknown object":       {types.DynamicValue(types.ObjectUnknown(nil)), true, "", ""},
		"JSON":                 {types.DynamicValue(text), false, "config", "this is a string. Write the object itself, without jsonencode; put jsondecode around text that is JSON."},
		"JSON, not known yet":  {types.DynamicValue(types.StringUnknown()), false, "config", "this is a string"},
		"list":                 {types.DynamicValue(tuple(object(nil))), false, "config", "this is a list"},
		"number":               {types.DynamicValue(number("1")), false, "config", "this is a number"},
		"bool":                 {types.DynamicValue(types.BoolValue(true)), false, "config", "this is true or false"},
		"members":              {types.DynamicValue(object(map[string]attr.Value{"a": object(nil), "b": types.DynamicNull(), "c": types.DynamicUnknown()})), true, "", ""},
		"JSON in a member":     {types.DynamicValue(object(map[string]attr.Value{"a": object(nil), "b": text})), true, `config["b"]`, "this is a string"},
		"JSON in all members":  {types.DynamicValue(types.MapValueMust(types.StringType, map[string]attr.Value{"a": text})), true, `config["a"]`, "this is a string"},
		"a string for members": {types.DynamicValue(text), true, "config", "this is a string"},
	} {
		var resp validator.DynamicResponse
		objectsOnly{test.members}.ValidateDynamic(t.Context(), validator.DynamicRequest{Path: path.Root("config"), ConfigValue: test.value}, &resp)
		errs := resp.Diagnostics.Errors()
		if test.at == "" {
			if len(errs) > 0 {
				t.Errorf("%s: %v", name, errs)
			}
			continue
		}
		if len(errs) != 1 || !strings.Contains(errs[0].Detail(), test.want) || !resp.Diagnostics.Contains(pathed(test.at, errs[0].Summary(), errs[0].Detail())) {
			t.Errorf("%s: got %v, wanted %q on %s", name, errs, test.want, test.at)
		}
	}
}

// pathed returns the diagnostic on a path that is written as in HCL.
func pathed(at, summary, detail string) diag.Diagnostic {
	p := path.Root("config")
	if _, key, ok := strings.Cut(at, `["`); ok {
		p = p.AtMapKey(strings.TrimSuffix(key, `"]`))
	}
	return diag.NewAttributeErrorDiagnostic(p, summary, detail)
}
