package tf

import (
	"context"
	"errors"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/hashicorp/terraform-plugin-framework-nettypes/cidrtypes"
	"github.com/hashicorp/terraform-plugin-framework-nettypes/iptypes"
	"github.com/hashicorp/terraform-plugin-framework-timetypes/timetypes"
	"github.com/hashicorp/terraform-plugin-framework/attr"
	"github.com/hashicorp/terraform-plugin-framework/diag"
	"github.com/hashicorp/terraform-plugin-framework/path"
	"github.com/hashicorp/terraform-plugin-framework/resource/schema"
	"github.com/hashicorp/terraform-plugin-framework/resource/schema/planmodifier"
	"github.com/hashicorp/terraform-plugin-framework/schema/validator"
	"github.com/hashicorp/terraform-plugin-framework/types"
)

type anyForm struct{}

func (anyForm) String() string { return "a network" }
func (anyForm) Check(p netip.Prefix) error {
	if p != p.Masked() {
		return errors.New("host bits")
	}
	return nil
}

func TestChecks(t *testing.T) {
	for _, test := range []struct {
		check       validator.String
		value, want string // part of the error, empty for none
	}{
		{CIDR(anyForm{}), "10.240.0.0/24", ""},
		{CIDR(anyForm{}), "10.240.0.7/24", "host bits"},
		{CIDR(anyForm{}), "here", "not valid IPv4 CIDR string format"},
		{CIDR(anyForm{}), "2001:db8::/32", "An IPv6 CIDR string format was provided"},
		{DNSLabel(4), "demo", ""},
		{DNSLabel(4), "demos", "1 to 4 lower-case letters"},
		{DNSLabel(4).And("that is not a", func(s string) error {
			_, err := netip.ParseAddr(s)
			return err
		}), "a", "unable to parse"},
		{DNSDomain(), "cluster.local", ""},
		{DNSDomain(), "cluster..local", "not a DNS domain"},
		{HostAddress(), "192.0.2.1", ""},
		{HostAddress(), "api.example.com", ""},
		{HostAddress(), "api example", "neither an IP address nor a DNS name"},
		{LoginUser(), "debian", ""},
		{LoginUser(), "root", "root logins are off"},
		{LoginUser(), "9", "not a login name"},
		{PositiveDuration(), "10m", ""},
		{PositiveDuration(), "-10m", "not longer than zero"},
		{HTTPURL(), "https://mirror.example.com/a", ""},
		{HTTPURL(), "ftp://mirror.example.com/a", "not an http or https URL"},
	} {
		var resp validator.StringResponse
		test.check.ValidateString(t.Context(), validator.StringRequest{Path: path.Root("a"), ConfigValue: types.StringValue(test.value)}, &resp)
		said := ""
		for _, d := range resp.Diagnostics {
			said += d.Detail()
		}
		if (said == "") != (test.want == "") || !strings.Contains(said, test.want) {
			t.Errorf("%s: got %q, wanted %q", test.value, said, test.want)
		}
	}
}

func TestPath(t *testing.T) {
	for s, want := range map[string]path.Path{
		"service_cidr":       path.Root("service_cidr"),
		"hosts[1].pod_cidr":  path.Root("hosts").AtListIndex(1).AtName("pod_cidr"),
		"a.b[0]":             path.Root("a").AtName("b").AtListIndex(0),
		`plugins["a]\"."].b`: path.Root("plugins").AtMapKey(`a]".`).AtName("b"),
		"hosts[x]":           path.Root("hosts"),
		`plugins["x`:         path.Root("plugins"),
	} {
		if got := Path(s); !got.Equal(want) {
			t.Errorf("%s: got %s, wanted %s", s, got, want)
		}
	}
}

func TestAllKnown(t *testing.T) {
	hidden := types.DynamicValue(types.TupleValueMust([]attr.Type{types.StringType}, []attr.Value{types.StringUnknown()}))
	for name, v := range map[string]attr.Value{
		"string": types.StringUnknown(), "address": iptypes.NewIPv4AddressUnknown(), "dynamic": hidden,
		"list":   types.ListValueMust(types.StringType, []attr.Value{types.StringUnknown()}),
		"set":    types.SetValueMust(types.StringType, []attr.Value{types.StringUnknown()}),
		"map":    types.MapValueMust(types.StringType, map[string]attr.Value{"a": types.StringUnknown()}),
		"object": types.ObjectValueMust(map[string]attr.Type{"a": types.DynamicType}, map[string]attr.Value{"a": hidden}),
	} {
		if AllKnown(types.BoolNull(), v) || AllSet(v) {
			t.Errorf("%s is known", name)
		}
	}
	if !AllKnown(types.StringNull(), types.DynamicNull(), types.MapNull(types.StringType)) || AllSet(types.StringNull()) || !AllSet(types.StringValue("")) {
		t.Error("null is not known, or given")
	}
}

func TestConversions(t *testing.T) {
	addr, prefix := netip.MustParseAddr("192.0.2.1"), netip.MustParsePrefix("10.0.0.0/8")
	if Addr(OptionalAddr(addr)) != addr || Addr(iptypes.NewIPv4AddressUnknown()).IsValid() || !OptionalAddr(netip.Addr{}).IsNull() {
		t.Error("addresses")
	}
	if Prefix(OptionalPrefix(prefix)) != prefix || Prefix(cidrtypes.NewIPv4PrefixNull()).IsValid() || !OptionalPrefix(netip.Prefix{}).IsNull() {
		t.Error("networks")
	}
	two := []netip.Prefix{prefix, netip.MustParsePrefix("192.168.0.0/16")}
	if got := Prefixes(PrefixesValue([]netip.Prefix{two[1], two[0]})); !slices.Equal(got, two) {
		t.Errorf("networks %v", got)
	}
	if Duration(timetypes.NewGoDurationValueFromStringMust("90s"), 0) != 90*time.Second || Duration(timetypes.NewGoDurationNull(), time.Hour) != time.Hour ||
		Duration(timetypes.NewGoDurationUnknown(), time.Hour) != time.Hour {
		t.Error("durations")
	}
	if got := Strings(StringsValue([]string{"a", "b"}).Elements()); !slices.Equal(got, []string{"a", "b"}) {
		t.Errorf("strings %q", got)
	}
	if got := StringMap(StringMapValue(map[string]string{"a": "b"})); len(got) != 1 || got["a"] != "b" || StringMap(NoDrift()) != nil {
		t.Errorf("maps %v", got)
	}
	for d, want := range map[time.Duration]string{time.Hour: "1h", 90 * time.Minute: "90m", 90 * time.Second: "1m30s"} {
		if got := ShortDuration(d); got != want {
			t.Errorf("%s is written %s", d, got)
		}
	}
}

// TestKeepEquivalent checks that another spelling plans nothing, and that another value is planned.
func TestKeepEquivalent(t *testing.T) {
	text := func(s string) types.String {
		switch s {
		case "null":
			return types.StringNull()
		case "unknown":
			return types.StringUnknown()
		}
		return types.StringValue(s)
	}
	for _, test := range []struct {
		modifier      planmodifier.String
		state, config string
		kept          bool
	}{
		{KeepEquivalent(timetypes.GoDurationType{}), "1h", "60m", true},
		{KeepEquivalent(timetypes.GoDurationType{}), "1h", "61m", false},
		{KeepEquivalent(timetypes.GoDurationType{}), "null", "0s", false},
		{KeepEquivalent(timetypes.GoDurationType{}), "0s", "unknown", false},
		{KeepEquivalent(types.StringType), "a", "a ", false},
		{KeepSame(strings.EqualFold), "a", "A", true},
		{KeepSame(strings.EqualFold), "a", "B", false},
		{KeepSame(strings.EqualFold), "null", "", false},
	} {
		state, config := text(test.state), text(test.config)
		want := config
		if test.kept {
			want = state
		}
		resp := planmodifier.StringResponse{PlanValue: config}
		test.modifier.PlanModifyString(t.Context(), planmodifier.StringRequest{StateValue: state, ConfigValue: config, PlanValue: config}, &resp)
		if !resp.PlanValue.Equal(want) {
			t.Errorf("%s after %s: planned is %s", test.config, test.state, resp.PlanValue)
		}
	}
	list := KeepSameList(func(a, b []string) bool { return len(a) == len(b) })
	for _, test := range []struct {
		state, config types.List
		kept          bool
	}{
		{StringsValue([]string{"a"}), StringsValue([]string{"b"}), true},
		{StringsValue([]string{"a"}), StringsValue(nil), false},
		{types.ListNull(types.StringType), StringsValue(nil), false},
		{StringsValue([]string{"a"}), types.ListValueMust(types.StringType, []attr.Value{types.StringUnknown()}), false},
	} {
		resp := planmodifier.ListResponse{PlanValue: test.config}
		list.PlanModifyList(t.Context(), planmodifier.ListRequest{StateValue: test.state, ConfigValue: test.config, PlanValue: test.config}, &resp)
		if resp.PlanValue.Equal(test.state) != test.kept {
			t.Errorf("%s after %s: planned is %s", test.config, test.state, resp.PlanValue)
		}
	}
}

type innerModel struct {
	CIDR cidrtypes.IPv4Prefix `tfsdk:"cidr"`
}

type outerModel struct {
	Name   types.String `tfsdk:"name"`
	Port   types.Int64  `tfsdk:"port"`
	Names  types.List   `tfsdk:"names"`
	Nets   types.Set    `tfsdk:"nets"`
	Tags   types.Map    `tfsdk:"tags"`
	Inner  types.Object `tfsdk:"inner"`
	Inners types.List   `tfsdk:"inners"`
}

// TestReference checks that the output has the type of the input, is computed, and has no
// validators.
func TestReference(t *testing.T) {
	inner := NewReference[innerModel](map[string]schema.Attribute{
		"cidr": schema.StringAttribute{Required: true, CustomType: cidrtypes.IPv4PrefixType{}, Validators: []validator.String{CIDR(anyForm{})}},
	})
	outer := NewReference[outerModel](map[string]schema.Attribute{
		"name": schema.StringAttribute{Required: true}, "port": schema.Int64Attribute{Optional: true},
		"names":  schema.ListAttribute{Required: true, ElementType: types.StringType},
		"nets":   schema.SetAttribute{Optional: true, ElementType: cidrtypes.IPv4PrefixType{}},
		"tags":   schema.MapAttribute{Required: true, ElementType: types.StringType, Sensitive: true},
		"inner":  inner.Input("Inner."),
		"inners": inner.Inputs("Inners."),
	})
	in, out := outer.Input("Outer."), outer.Output("Outer.")
	if !in.GetType().Equal(out.GetType()) || !in.GetType().Equal(outer.Type()) {
		t.Error("input and output have other types")
	}
	diags := (schema.Schema{Attributes: map[string]schema.Attribute{"in": in, "out": out}}).ValidateImplementation(t.Context())
	if diags.HasError() {
		t.Error(diags)
	}
	all := map[string]schema.Attribute{"cidr": out.Attributes["inner"].(schema.SingleNestedAttribute).Attributes["cidr"]}
	for name, a := range out.Attributes {
		all[name] = a
	}
	for name, a := range all {
		if !a.IsComputed() || a.IsRequired() || a.IsOptional() || a.IsSensitive() != (name == "tags") {
			t.Errorf("%s is not merely computed", name)
		}
	}
	if !in.Attributes["name"].IsRequired() || len(all["cidr"].(schema.StringAttribute).Validators) > 0 {
		t.Error("the output checks, or the input changed")
	}

	one := inner.Value(t.Context(), innerModel{cidrtypes.NewIPv4PrefixUnknown()})
	m := outerModel{
		Name: types.StringValue("a"), Port: types.Int64Null(), Names: types.ListUnknown(types.StringType), Nets: types.SetNull(cidrtypes.IPv4PrefixType{}),
		Tags: NoDrift(), Inner: one, Inners: types.ListValueMust(inner.Type(), []attr.Value{one}),
	}
	var said diag.Diagnostics
	got, ok := outer.Read(t.Context(), outer.Value(t.Context(), m), &said)
	if !ok || said.HasError() || !got.Name.Equal(m.Name) || !got.Inners.Equal(m.Inners) || !got.Names.IsUnknown() {
		t.Errorf("read back is %v, %v", got, said)
	}
	if _, ok := outer.Read(context.Background(), outer.Unknown(), &said); ok {
		t.Error("an unknown reference is known")
	}
}
