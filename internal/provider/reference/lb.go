package reference

import (
	"context"
	"maps"
	"net"
	"net/netip"
	"slices"
	"strconv"

	"github.com/hashicorp/terraform-plugin-framework-validators/int64validator"
	"github.com/hashicorp/terraform-plugin-framework/attr"
	"github.com/hashicorp/terraform-plugin-framework/diag"
	"github.com/hashicorp/terraform-plugin-framework/resource/schema"
	"github.com/hashicorp/terraform-plugin-framework/schema/validator"
	"github.com/hashicorp/terraform-plugin-framework/types"

	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/aws/balancer"
	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/component"
	"github.com/k8s-from-scratch/terraform-provider-k8s/internal/provider/tf"
)

// LB is k8s_lb.x.ref and k8s_nlb.x.ref.
type LB struct {
	Cluster         types.String `tfsdk:"cluster"`
	Controllers     types.Map    `tfsdk:"controllers"`
	Endpoint        types.String `tfsdk:"endpoint"`
	PrivateEndpoint types.String `tfsdk:"private_endpoint"`
	Names           types.List   `tfsdk:"names"`
	Machines        types.Map    `tfsdk:"machines"`
	NoticeSeconds   types.Int64  `tfsdk:"notice_seconds"`
}

var OfLB = tf.NewReference[LB](map[string]schema.Attribute{
	"cluster": schema.StringAttribute{Optional: true, MarkdownDescription: "Name of the cluster. Default: not checked."},
	"controllers": schema.MapAttribute{
		Optional: true, ElementType: types.StringType,
		MarkdownDescription: "Private addresses of the machines behind it, by name. They must be the hosts of the control plane. Default: not checked.",
	},
	"endpoint":         Required(PublicEndpoint),
	"private_endpoint": Required(PrivateEndpoint),
	"names": schema.ListAttribute{
		Required: true, ElementType: types.StringType, MarkdownDescription: "Names and addresses in the endpoints' URLs. They are in the API servers' certificates.",
	},
	"machines": schema.MapAttribute{
		Optional: true, ElementType: types.StringType,
		MarkdownDescription: "Private addresses of its own machines, by name. `allowed_cidrs` of the control plane must contain them. Default: not checked.",
	},
	"notice_seconds": schema.Int64Attribute{
		Optional: true, MarkdownDescription: "Seconds within which the load balancer notices that an API server is not ready. An API server that is being stopped serves this long. Default: 3.",
		Validators: []validator.Int64{int64validator.Between(1, MaxNotice)},
	},
})

// MaxNotice is how long an API server may still serve when it is stopped: systemd kills it after 90 seconds, and
// the requests under way get up to 60.
const MaxNotice = 25

// LBFrom reads the argument `lb`. If the argument is unknown, all of its attributes are.
func LBFrom(ctx context.Context, o types.Object, diags *diag.Diagnostics) LB {
	m, ok := OfLB.Read(ctx, o, diags)
	if !ok {
		unknown := types.StringUnknown()
		return LB{unknown, types.MapUnknown(types.StringType), unknown, unknown, types.ListUnknown(types.StringType), types.MapUnknown(types.StringType), types.Int64Unknown()}
	}
	return m
}

// Backends returns the addresses of the controllers by name, zero where they are unknown; nil if
// nothing is known of them.
func (m LB) Backends() map[string]netip.Addr {
	return addressesByName(m.Controllers)
}

// KnownMachines returns the load balancer's own machines, as far as they are known.
func (m LB) KnownMachines() (out []component.Host) {
	byName := addressesByName(m.Machines)
	for _, name := range slices.Sorted(maps.Keys(byName)) {
		out = append(out, component.Host{Node: component.Node{Name: name, PrivateIP: byName[name]}})
	}
	return out
}

func addressesByName(m types.Map) map[string]netip.Addr {
	if m.IsNull() || m.IsUnknown() {
		return nil
	}
	out := map[string]netip.Addr{}
	for name, v := range m.Elements() {
		ip, _ := v.(types.String)
		out[name], _ = netip.ParseAddr(ip.ValueString())
	}
	return out
}

// LBOfAWS returns the reference to Network Load Balancers, by their names. Without a public one both names are the same.
func LBOfAWS(cluster types.String, controllers types.Map, public, private types.String) LB {
	port := types.Int64Value(component.APIServerPort)
	return LB{
		Cluster: cluster, Controllers: controllers, Endpoint: URLOf(public, port), PrivateEndpoint: URLOf(private, port), Names: NamesValue(public, private),
		Machines: types.MapNull(types.StringType), NoticeSeconds: types.Int64Value(int64(balancer.NoticeDelay.Seconds())),
	}
}

// NamesValue returns the different ones of names, unknown if one of them is.
func NamesValue(names ...types.String) types.List {
	var out []attr.Value
	for _, n := range names {
		if n.IsUnknown() {
			return types.ListUnknown(types.StringType)
		}
		if !n.IsNull() && !slices.Contains(out, attr.Value(n)) {
			out = append(out, n)
		}
	}
	return types.ListValueMust(types.StringType, out)
}

func URLOf(host types.String, port types.Int64) types.String {
	if host.IsUnknown() || port.IsUnknown() {
		return types.StringUnknown()
	}
	return types.StringValue("https://" + net.JoinHostPort(host.ValueString(), strconv.FormatInt(port.ValueInt64(), 10)))
}
