package provider

import (
	"context"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"time"

	"github.com/hashicorp/terraform-plugin-framework/attr"
	"github.com/hashicorp/terraform-plugin-framework/diag"
	"github.com/hashicorp/terraform-plugin-framework/path"
	"github.com/hashicorp/terraform-plugin-framework/resource/schema"
	"github.com/hashicorp/terraform-plugin-framework/schema/validator"
	"github.com/hashicorp/terraform-plugin-framework/types"

	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/component"
	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/remote"
)

// hostModel is one machine as role resources see it: k8s_machine.x.host, or an
// object written by hand for a machine that is not ours.
type hostModel struct {
	Name       types.String `tfsdk:"name"`
	Address    types.String `tfsdk:"address"`
	PrivateIP  types.String `tfsdk:"private_ip"`
	PublicIP   types.String `tfsdk:"public_ip"`
	Port       types.Int64  `tfsdk:"port"`
	User       types.String `tfsdk:"user"`
	HostKey    types.String `tfsdk:"host_key"`
	PodCIDR    types.String `tfsdk:"pod_cidr"`
	InstanceID types.String `tfsdk:"instance_id"`
}

// hostType is the object type of hostModel.
var hostType = types.ObjectType{AttrTypes: map[string]attr.Type{
	"name":        types.StringType,
	"address":     types.StringType,
	"private_ip":  types.StringType,
	"public_ip":   types.StringType,
	"port":        types.Int64Type,
	"user":        types.StringType,
	"host_key":    types.StringType,
	"pod_cidr":    types.StringType,
	"instance_id": types.StringType,
}}

// hostInput returns the attributes of a host that a role resource takes. None
// is Required: the framework misses the attributes of an element of a list that
// is not known yet, as k8s_machine.x.host is before the first apply.
// completeHost asks for them instead.
func hostInput() map[string]schema.Attribute {
	return map[string]schema.Attribute{
		"name": schema.StringAttribute{
			Optional: true, MarkdownDescription: "Required. Name of the machine: its hostname and node name.",
			Validators: []validator.String{machineName()},
		},
		"address": schema.StringAttribute{
			Optional: true, MarkdownDescription: "Required. IP address or DNS name at which it is reached by SSH.",
			Validators: []validator.String{hostAddress()},
		},
		"private_ip": schema.StringAttribute{
			Optional: true, MarkdownDescription: "Required. IP address at which the cluster's machines reach each other.",
			Validators: []validator.String{ipv4()},
		},
		"public_ip": schema.StringAttribute{
			Optional: true, MarkdownDescription: "Public IP address, if it has one.",
			Validators: []validator.String{ipv4()},
		},
		"port": schema.Int64Attribute{
			Optional: true, MarkdownDescription: "SSH port. Default: 22.",
			Validators: []validator.Int64{portNumber()},
		},
		"user": schema.StringAttribute{
			Optional: true, MarkdownDescription: "Login user with passwordless sudo. Default: the provider's `ssh.user`.",
			Validators: []validator.String{loginUser()},
		},
		"host_key": schema.StringAttribute{
			Optional: true, MarkdownDescription: "Required. SSH host key it must show, as `ssh-ed25519 AAAA...`.",
			Validators: []validator.String{hostKey()},
		},
		"pod_cidr": schema.StringAttribute{
			Optional: true, MarkdownDescription: "Network of the pods on it; workers only.",
			Validators: []validator.String{canonicalCIDR(8, 30)},
		},
		"instance_id": schema.StringAttribute{
			Optional: true, MarkdownDescription: "EC2 instance, if it is one.",
		},
	}
}

// completeHost reports what a host lacks that no role can do without.
type completeHost struct{}

func (completeHost) Description(context.Context) string {
	return "A host has name, address, private_ip and host_key."
}
func (v completeHost) MarkdownDescription(ctx context.Context) string { return v.Description(ctx) }

func (completeHost) ValidateObject(ctx context.Context, req validator.ObjectRequest, resp *validator.ObjectResponse) {
	h, ok := hostFrom(ctx, req.ConfigValue, &resp.Diagnostics)
	if !ok {
		return
	}
	for _, a := range []struct {
		name  string
		value types.String
	}{{"name", h.Name}, {"address", h.Address}, {"private_ip", h.PrivateIP}, {"host_key", h.HostKey}} {
		if a.value.IsNull() {
			resp.Diagnostics.AddAttributeError(req.Path.AtName(a.name), "Incomplete host", "A host needs "+a.name+".")
		}
	}
}

// hostAttribute is a required input of one host.
func hostAttribute(description string) schema.SingleNestedAttribute {
	return schema.SingleNestedAttribute{
		Required: true, MarkdownDescription: description, Attributes: hostInput(),
		Validators: []validator.Object{completeHost{}},
	}
}

// hostsAttribute is a required input of at least one host.
func hostsAttribute(description string, validators ...validator.List) schema.ListNestedAttribute {
	return schema.ListNestedAttribute{
		Required: true, MarkdownDescription: description, Validators: validators,
		NestedObject: schema.NestedAttributeObject{Attributes: hostInput(), Validators: []validator.Object{completeHost{}}},
	}
}

// value turns the model into the object.
func (h hostModel) value() types.Object {
	return types.ObjectValueMust(hostType.AttrTypes, map[string]attr.Value{
		"name": h.Name, "address": h.Address, "private_ip": h.PrivateIP, "public_ip": h.PublicIP, "port": h.Port,
		"user": h.User, "host_key": h.HostKey, "pod_cidr": h.PodCIDR, "instance_id": h.InstanceID,
	})
}

// remote returns how the host is reached: at its private address when there is
// a bastion.
func (h hostModel) remote(d *providerData) remote.Host {
	out := remote.Host{
		Name:     h.Name.ValueString(),
		Address:  h.Address.ValueString(),
		Port:     int(h.Port.ValueInt64()),
		User:     h.User.ValueString(),
		HostKeys: []string{h.HostKey.ValueString()},
	}
	if out.User == "" {
		out.User = d.ssh.user
	}
	if d.ssh.bastion != nil {
		out.Bastion = d.ssh.bastion
		out.Address = h.PrivateIP.ValueString()
	}
	return out
}

// node returns the host as the cluster sees it. What is null or unknown stays zero.
func (h hostModel) node() component.Node {
	return component.Node{
		Name:      h.Name.ValueString(),
		PrivateIP: parseAddr(h.PrivateIP),
		PublicIP:  parseAddr(h.PublicIP),
		PodCIDR:   parsePrefix(h.PodCIDR),
	}
}

// hostFrom reads one host; false means that it is null or entirely unknown.
func hostFrom(ctx context.Context, o types.Object, diags *diag.Diagnostics) (hostModel, bool) {
	return object[hostModel](ctx, o, diags)
}

// hostsFrom reads a list of hosts; false means that some of it is entirely
// unknown. Single attributes may be unknown in either case.
func hostsFrom(ctx context.Context, l types.List, diags *diag.Diagnostics) ([]hostModel, bool) {
	if l.IsUnknown() {
		return nil, false
	}
	known := true
	var out []hostModel
	for _, e := range l.Elements() {
		o, ok := e.(types.Object)
		if !ok {
			diags.AddError("Not a host", fmt.Sprintf("A host has the type %s.", e.Type(ctx)))
			return nil, false
		}
		h, ok := hostFrom(ctx, o, diags)
		if !ok {
			known = false
			continue
		}
		out = append(out, h)
	}
	return out, known
}

// checkHosts reports, on the element at fault, hosts that share a name, a
// private address or an address. Unknown values are not compared.
func checkHosts(at path.Path, hosts []hostModel, diags *diag.Diagnostics) {
	seen := map[string]int{}
	for i, h := range hosts {
		for _, a := range []struct {
			name  string
			value types.String
		}{{"name", h.Name}, {"private_ip", h.PrivateIP}, {"address", h.Address}} {
			if a.value.IsNull() || a.value.IsUnknown() {
				continue
			}
			key := a.name + "\x00" + a.value.ValueString()
			if first, dup := seen[key]; dup {
				diags.AddAttributeError(at.AtListIndex(i).AtName(a.name), "Duplicate host",
					fmt.Sprintf("Host %d has the same %s as host %d: %s.", i, a.name, first, a.value.ValueString()))
				break
			}
			seen[key] = i
		}
	}
}

// checkOdd reports an even number of voters, with which a cluster survives no
// more failures than with one fewer.
func checkOdd(at path.Path, what string, n int, diags *diag.Diagnostics) {
	if n%2 == 0 {
		diags.AddAttributeError(at, "Even number of "+what,
			fmt.Sprintf("%d %s tolerate no more failures than %d, and a split leaves neither half a majority: use 1, 3, 5 or 7.", n, what, max(n-1, 0)))
	}
}

// checkDisjoint reports, on the first attribute, networks that overlap.
// Zero prefixes are passed over.
func checkDisjoint(a, b namedPrefix, diags *diag.Diagnostics) {
	if a.prefix.IsValid() && b.prefix.IsValid() && a.prefix.Overlaps(b.prefix) {
		diags.AddAttributeError(a.path, "Overlapping networks",
			fmt.Sprintf("%s %s overlaps %s %s. Nodes, pods and services need networks of their own.", a.name, a.prefix, b.name, b.prefix))
	}
}

type namedPrefix struct {
	path   path.Path
	name   string
	prefix netip.Prefix
}

// prefixNamed names the network in an attribute at the root of a resource.
func prefixNamed(name string, v types.String) namedPrefix {
	return namedPrefix{path.Root(name), name, parsePrefix(v)}
}

// parseAddr returns the zero Addr for what is null, unknown or malformed;
// validators have reported the last.
func parseAddr(v types.String) netip.Addr {
	a, err := netip.ParseAddr(v.ValueString())
	if err != nil {
		return netip.Addr{}
	}
	return a
}

// parsePrefix returns the zero Prefix for what is null, unknown or malformed.
func parsePrefix(v types.String) netip.Prefix {
	p, err := netip.ParsePrefix(v.ValueString())
	if err != nil {
		return netip.Prefix{}
	}
	return p
}

// duration returns the fallback for what is null, unknown or malformed.
func duration(v types.String, fallback time.Duration) time.Duration {
	d, err := time.ParseDuration(v.ValueString())
	if err != nil {
		return fallback
	}
	return d
}

// stringMap returns the known elements; nil when there are none.
func stringMap(m types.Map) map[string]string {
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

// stringMapValue is the opposite; nil becomes an empty map.
func stringMapValue(m map[string]string) types.Map { return driftValue(m) }

// stringsFrom returns the known elements of a list or set of strings, in order.
func stringsFrom(elements []attr.Value) []string {
	var out []string
	for _, e := range elements {
		if s, ok := e.(types.String); ok && !s.IsUnknown() && !s.IsNull() {
			out = append(out, s.ValueString())
		}
	}
	return out
}

// prefixesFrom returns the known networks of a set of strings, sorted.
func prefixesFrom(s types.Set) []netip.Prefix {
	var out []netip.Prefix
	for _, v := range slices.Sorted(slices.Values(stringsFrom(s.Elements()))) {
		if p, err := netip.ParsePrefix(v); err == nil {
			out = append(out, p)
		}
	}
	return out
}

// allKnown reports whether none of the values, nor any element of a map, list
// or set among them, is unknown.
func allKnown(values ...attr.Value) bool {
	for _, v := range values {
		if v.IsUnknown() {
			return false
		}
		var elements []attr.Value
		switch v := v.(type) {
		case types.Map:
			elements = slices.Collect(maps.Values(v.Elements()))
		case types.List:
			elements = v.Elements()
		case types.Set:
			elements = v.Elements()
		case types.Object:
			elements = slices.Collect(maps.Values(v.Attributes()))
		}
		if !allKnown(elements...) {
			return false
		}
	}
	return true
}

// optionalString is null for the empty string.
func optionalString(s string) types.String {
	if s == "" {
		return types.StringNull()
	}
	return types.StringValue(s)
}

// optionalAddr is null for the zero address.
func optionalAddr(a netip.Addr) types.String {
	if !a.IsValid() {
		return types.StringNull()
	}
	return types.StringValue(a.String())
}

// optionalPrefix is null for the zero network.
func optionalPrefix(p netip.Prefix) types.String {
	if !p.IsValid() {
		return types.StringNull()
	}
	return types.StringValue(p.String())
}
