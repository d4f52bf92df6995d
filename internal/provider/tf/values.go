package tf

import (
	"context"
	"maps"
	"net/netip"
	"slices"
	"strings"
	"time"

	"github.com/hashicorp/terraform-plugin-framework-nettypes/cidrtypes"
	"github.com/hashicorp/terraform-plugin-framework-nettypes/iptypes"
	"github.com/hashicorp/terraform-plugin-framework-timetypes/timetypes"
	"github.com/hashicorp/terraform-plugin-framework/attr"
	"github.com/hashicorp/terraform-plugin-framework/diag"
	"github.com/hashicorp/terraform-plugin-framework/types"
	"github.com/hashicorp/terraform-plugin-framework/types/basetypes"
)

// Object reads a nested object. It returns the zero value and false if the object is null or
// unknown. Single attributes may be unknown in either case.
func Object[T any](ctx context.Context, o types.Object, diags *diag.Diagnostics) (T, bool) {
	var out T
	if o.IsNull() || o.IsUnknown() {
		return out, false
	}
	unfit := o.As(ctx, &out, basetypes.ObjectAsOptions{})
	diags.Append(unfit...)
	return out, !unfit.HasError()
}

// Objects reads a list of objects. It returns false if one of them is unknown as a whole.
func Objects[T any](ctx context.Context, l types.List, diags *diag.Diagnostics) ([]T, bool) {
	known := !l.IsUnknown()
	var out []T
	for _, e := range l.Elements() {
		o, _ := e.(types.Object)
		v, ok := Object[T](ctx, o, diags)
		if !ok {
			known = false
			continue
		}
		out = append(out, v)
	}
	return out, known
}

// AllKnown reports whether all values are known, including everything within them.
func AllKnown(values ...attr.Value) bool {
	for _, v := range values {
		if v.IsUnknown() || !AllKnown(within(v)...) {
			return false
		}
	}
	return true
}

// within returns the elements of a value.
func within(v attr.Value) []attr.Value {
	switch v := v.(type) {
	case types.Map:
		return slices.Collect(maps.Values(v.Elements()))
	case types.List:
		return v.Elements()
	case types.Set:
		return v.Elements()
	case types.Tuple:
		return v.Elements()
	case types.Object:
		return slices.Collect(maps.Values(v.Attributes()))
	case types.Dynamic:
		if below := v.UnderlyingValue(); below != nil {
			return []attr.Value{below}
		}
	}
	return nil
}

// Addr returns the address, or the zero Addr if v is null or unknown.
func Addr(v iptypes.IPv4Address) netip.Addr {
	a, _ := v.ValueIPv4Address()
	return a
}

// Prefix returns the network, or the zero Prefix if v is null or unknown.
func Prefix(v cidrtypes.IPv4Prefix) netip.Prefix {
	p, _ := v.ValueIPv4Prefix()
	return p
}

// Duration returns the duration, or the fallback if v is null or unknown.
func Duration(v timetypes.GoDuration, fallback time.Duration) time.Duration {
	d, diags := v.ValueGoDuration()
	if diags.HasError() {
		return fallback
	}
	return d
}

// OptionalString is null for the empty string.
func OptionalString(s string) types.String {
	if s == "" {
		return types.StringNull()
	}
	return types.StringValue(s)
}

// OptionalAddr is null for the zero address.
func OptionalAddr(a netip.Addr) iptypes.IPv4Address {
	if !a.IsValid() {
		return iptypes.NewIPv4AddressNull()
	}
	return iptypes.NewIPv4AddressValue(a.String())
}

// OptionalPrefix is null for the zero network.
func OptionalPrefix(p netip.Prefix) cidrtypes.IPv4Prefix {
	if !p.IsValid() {
		return cidrtypes.NewIPv4PrefixNull()
	}
	return cidrtypes.NewIPv4PrefixValue(p.String())
}

// StringMap returns the known elements, or nil if there are none.
func StringMap(m types.Map) map[string]string {
	var out map[string]string
	for k, v := range m.Elements() {
		s, ok := v.(types.String)
		if !ok || s.IsUnknown() || s.IsNull() {
			continue
		}
		if out == nil {
			out = map[string]string{}
		}
		out[k] = s.ValueString()
	}
	return out
}

// StringMapValue is the inverse of StringMap; nil becomes an empty map.
func StringMapValue(m map[string]string) types.Map {
	elements := make(map[string]attr.Value, len(m))
	for k, v := range m {
		elements[k] = types.StringValue(v)
	}
	return types.MapValueMust(types.StringType, elements)
}

// Strings returns the known elements of a list or set of strings, in order.
func Strings(elements []attr.Value) []string {
	var out []string
	for _, e := range elements {
		if s, ok := e.(types.String); ok && !s.IsUnknown() && !s.IsNull() {
			out = append(out, s.ValueString())
		}
	}
	return out
}

// StringsValue is the inverse of Strings for lists; nil becomes an empty list.
func StringsValue(list []string) types.List {
	elements := make([]attr.Value, 0, len(list))
	for _, s := range list {
		elements = append(elements, types.StringValue(s))
	}
	return types.ListValueMust(types.StringType, elements)
}

// StringSet is the inverse of Strings for sets; nil becomes an empty set.
func StringSet(list ...string) types.Set {
	return types.SetValueMust(types.StringType, StringsValue(list).Elements())
}

// Addrs returns the known elements of a list of addresses.
func Addrs(l types.List) []netip.Addr {
	var out []netip.Addr
	for _, e := range l.Elements() {
		if v, ok := e.(iptypes.IPv4Address); ok {
			if a := Addr(v); a.IsValid() {
				out = append(out, a)
			}
		}
	}
	return out
}

// AddrsValue is the inverse of Addrs; nil becomes an empty list.
func AddrsValue(addresses []netip.Addr) types.List {
	elements := make([]attr.Value, 0, len(addresses))
	for _, a := range addresses {
		elements = append(elements, OptionalAddr(a))
	}
	return types.ListValueMust(iptypes.IPv4AddressType{}, elements)
}

// Prefixes returns the known elements of a set of networks, sorted by their text.
func Prefixes(s types.Set) []netip.Prefix {
	var out []netip.Prefix
	for _, e := range s.Elements() {
		if v, ok := e.(cidrtypes.IPv4Prefix); ok {
			if p := Prefix(v); p.IsValid() {
				out = append(out, p)
			}
		}
	}
	slices.SortFunc(out, func(a, b netip.Prefix) int { return strings.Compare(a.String(), b.String()) })
	return out
}

// PrefixesValue is the inverse of Prefixes; nil becomes an empty set.
func PrefixesValue(prefixes []netip.Prefix) types.Set {
	elements := make([]attr.Value, 0, len(prefixes))
	for _, p := range prefixes {
		elements = append(elements, OptionalPrefix(p))
	}
	return types.SetValueMust(cidrtypes.IPv4PrefixType{}, elements)
}

// AllSet reports whether all values are known and none is null.
func AllSet(values ...attr.Value) bool {
	for _, v := range values {
		if v.IsNull() {
			return false
		}
	}
	return AllKnown(values...)
}
