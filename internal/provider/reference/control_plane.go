package reference

import (
	"context"
	"net/netip"

	"github.com/hashicorp/terraform-plugin-framework-nettypes/cidrtypes"
	"github.com/hashicorp/terraform-plugin-framework-nettypes/iptypes"
	"github.com/hashicorp/terraform-plugin-framework-validators/stringvalidator"
	"github.com/hashicorp/terraform-plugin-framework/attr"
	"github.com/hashicorp/terraform-plugin-framework/diag"
	"github.com/hashicorp/terraform-plugin-framework/resource/schema"
	"github.com/hashicorp/terraform-plugin-framework/schema/validator"
	"github.com/hashicorp/terraform-plugin-framework/types"

	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/component"
	"github.com/k8s-from-scratch/terraform-provider-k8s/internal/provider/argument"
	"github.com/k8s-from-scratch/terraform-provider-k8s/internal/provider/tf"
)

// ControlPlane is k8s_control_plane.x.ref.
type ControlPlane struct {
	PKI             types.Object         `tfsdk:"pki"`
	Version         types.String         `tfsdk:"version"`
	Endpoint        types.String         `tfsdk:"endpoint"`
	PrivateEndpoint types.String         `tfsdk:"private_endpoint"`
	PodCIDR         cidrtypes.IPv4Prefix `tfsdk:"pod_cidr"`
	ServiceCIDR     cidrtypes.IPv4Prefix `tfsdk:"service_cidr"`
	NodeCIDRs       types.Set            `tfsdk:"node_cidrs"`
	PodRoutes       types.Map            `tfsdk:"pod_routes"`
	DNSIP           iptypes.IPv4Address  `tfsdk:"dns_ip"`
	Domain          types.String         `tfsdk:"domain"`
	PowerState      types.String         `tfsdk:"power_state"`
}

var OfControlPlane = tf.NewReference[ControlPlane](map[string]schema.Attribute{
	"pki":              OfPKI.Input(PKIDescription),
	"version":          Required("Kubernetes release."),
	"endpoint":         Required(PublicEndpoint),
	"private_endpoint": Required(PrivateEndpoint),
	"pod_cidr":         schema.StringAttribute{Required: true, CustomType: cidrtypes.IPv4PrefixType{}, MarkdownDescription: "Network of the pods."},
	"service_cidr":     schema.StringAttribute{Required: true, CustomType: cidrtypes.IPv4PrefixType{}, MarkdownDescription: "Network of the services."},
	"node_cidrs":       schema.SetAttribute{Optional: true, ElementType: cidrtypes.IPv4PrefixType{}, MarkdownDescription: "Networks of the subnets for machines."},
	"pod_routes":       schema.MapAttribute{Optional: true, ElementType: iptypes.IPv4AddressType{}, MarkdownDescription: "Routes to pods that all machines have: network of a node's pods to its private address."},
	"dns_ip":           schema.StringAttribute{Required: true, CustomType: iptypes.IPv4AddressType{}, MarkdownDescription: "Service address of cluster DNS."},
	"domain":           Required("Domain of cluster DNS."),
	"power_state": schema.StringAttribute{Optional: true, MarkdownDescription: "`stopped` if all machines of the API servers are stopped: then the API is not asked. Default: `running`.",
		Validators: []validator.String{stringvalidator.OneOf(Running, Stopped)}},
})

const ControlPlaneDescription = "Control plane of the cluster: `k8s_control_plane.<name>.ref`."

// Spec returns the cluster as the library has it.
func (m ControlPlane) Spec(ctx context.Context, diags *diag.Diagnostics) component.Cluster {
	ref, _ := PKIFrom(ctx, m.PKI, diags)
	return component.Cluster{
		Name:        ref.Cluster,
		Domain:      m.Domain.ValueString(),
		PodCIDR:     tf.Prefix(m.PodCIDR),
		ServiceCIDR: tf.Prefix(m.ServiceCIDR),
		NodeCIDRs:   tf.Prefixes(m.NodeCIDRs),
		PodRoutes:   PodRoutesFrom(m.PodRoutes),
		DNSIP:       tf.Addr(m.DNSIP),
		PKI:         ref,
	}
}

// Required is an attribute of a reference that takes any string.
func Required(description string) schema.StringAttribute {
	return schema.StringAttribute{Required: true, MarkdownDescription: description}
}

// clusterAttribute is the name of the cluster in a reference.
func clusterAttribute() schema.StringAttribute {
	a := Required("Name of the cluster.")
	a.Validators = []validator.String{argument.ClusterName()}
	return a
}

// Descriptions of the API server's URLs.
const (
	PublicEndpoint  = "Public endpoint: the URL at which people and Terraform reach the API server."
	PrivateEndpoint = "Private endpoint: the URL at which the cluster's machines reach the API server."
)

// PodRoutesFrom returns addresses by network, or nil unless all of them are known. An empty map is not nil.
func PodRoutesFrom(v types.Map) map[netip.Prefix]netip.Addr {
	if v.IsNull() || !tf.AllKnown(v) {
		return nil
	}
	out := map[netip.Prefix]netip.Addr{}
	for network, a := range v.Elements() {
		pods, err := netip.ParsePrefix(network)
		if ip, ok := a.(iptypes.IPv4Address); ok && err == nil {
			out[pods] = tf.Addr(ip)
		}
	}
	return out
}

// PodRoutesValue is the inverse of PodRoutesFrom.
func PodRoutesValue(m map[netip.Prefix]netip.Addr) types.Map {
	if m == nil {
		return types.MapNull(iptypes.IPv4AddressType{})
	}
	out := map[string]attr.Value{}
	for network, a := range m {
		out[network.String()] = tf.OptionalAddr(a)
	}
	return types.MapValueMust(iptypes.IPv4AddressType{}, out)
}
