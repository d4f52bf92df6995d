package provider

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
	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/pki"
	"github.com/k8s-from-scratch/terraform-provider-k8s/internal/provider/tf"
)

// References are objects that one resource outputs and others take as input. They contain what is
// needed to work with the resource, and no secrets unless the description says so. Each is defined
// here with its model, its attributes and its conversion to the library's type.

// subnetModel is one of the subnets of a network.
type subnetModel struct {
	ID               types.String         `tfsdk:"id"`
	CIDR             cidrtypes.IPv4Prefix `tfsdk:"cidr"`
	AvailabilityZone types.String         `tfsdk:"availability_zone"`
	Public           types.Bool           `tfsdk:"public"`
}

var subnetRef = tf.NewReference[subnetModel](map[string]schema.Attribute{
	"id":                schema.StringAttribute{Required: true, MarkdownDescription: "Id of the subnet. Routes to pods are added to the route table that applies to it."},
	"cidr":              schema.StringAttribute{Required: true, CustomType: cidrtypes.IPv4PrefixType{}, MarkdownDescription: "Network of the subnet."},
	"availability_zone": schema.StringAttribute{Optional: true, MarkdownDescription: "Availability zone of the subnet."},
	"public":            schema.BoolAttribute{Optional: true, MarkdownDescription: "Whether the subnet's default route leads to an internet gateway; null if it does not in an adopted VPC."},
})

// networkRefModel is k8s_network.x.ref.
type networkRefModel struct {
	Cluster          types.String         `tfsdk:"cluster"`
	VPCID            types.String         `tfsdk:"vpc_id"`
	NodeCIDR         cidrtypes.IPv4Prefix `tfsdk:"node_cidr"`
	VPCCIDR          cidrtypes.IPv4Prefix `tfsdk:"vpc_cidr"`
	Subnets          types.List           `tfsdk:"subnets"`
	SecurityGroupIDs types.Map            `tfsdk:"security_group_ids"`
	ControllerPods   types.Bool           `tfsdk:"controller_pods"`
	Paused           types.Bool           `tfsdk:"paused"`
}

var networkRef = tf.NewReference[networkRefModel](map[string]schema.Attribute{
	"cluster": clusterAttribute(),
	"vpc_id":  schema.StringAttribute{Required: true, MarkdownDescription: "Id of the VPC."},
	"vpc_cidr": schema.StringAttribute{
		Required: true, CustomType: cidrtypes.IPv4PrefixType{}, MarkdownDescription: "Network of the VPC.",
		Validators: []validator.String{tf.CIDR(component.ClusterCIDR)},
	},
	"node_cidr": schema.StringAttribute{
		Required: true, CustomType: cidrtypes.IPv4PrefixType{}, MarkdownDescription: "Network of the machines.",
		Validators: []validator.String{tf.CIDR(component.ClusterCIDR)},
	},
	"subnets": subnetRef.Inputs("Subnets for machines."),
	"security_group_ids": schema.MapAttribute{
		Required: true, ElementType: types.StringType,
		MarkdownDescription: "Id of the security group by role: `lb`, `controller`, `etcd`, `worker`.",
	},
	"controller_pods": schema.BoolAttribute{Optional: true, MarkdownDescription: "Whether controllers may be nodes. Default: `false`."},
	"paused":          schema.BoolAttribute{Optional: true, MarkdownDescription: "Whether the cluster is paused, and all of its machines are stopped. Default: `false`."},
})

// subnets returns the subnets all of whose attributes are known.
func (m networkRefModel) subnets(ctx context.Context, diags *diag.Diagnostics) []subnetModel {
	out, _ := tf.Objects[subnetModel](ctx, m.Subnets, diags)
	return out
}

// subnetIDs returns the ids of all subnets, and whether they are known.
func (m networkRefModel) subnetIDs(ctx context.Context, diags *diag.Diagnostics) (ids []string, known bool) {
	for _, s := range m.subnets(ctx, diags) {
		ids = append(ids, s.ID.ValueString())
	}
	return ids, len(ids) > 0 && tf.AllKnown(m.Subnets)
}

// etcdRefModel is k8s_etcd_cluster.x.ref.
type etcdRefModel struct {
	Cluster      types.String `tfsdk:"cluster"`
	Version      types.String `tfsdk:"version"`
	Endpoints    types.List   `tfsdk:"endpoints"`
	AllowedCIDRs types.Set    `tfsdk:"allowed_cidrs"`
}

var etcdRef = tf.NewReference[etcdRefModel](map[string]schema.Attribute{
	"cluster":   schema.StringAttribute{Optional: true, MarkdownDescription: "Name of the cluster. Default: not checked."},
	"version":   required("etcd release."),
	"endpoints": schema.ListAttribute{Required: true, ElementType: types.StringType, MarkdownDescription: "URLs at which clients reach the members."},
	"allowed_cidrs": schema.SetAttribute{
		Optional: true, ElementType: cidrtypes.IPv4PrefixType{},
		MarkdownDescription: "Networks that may reach the members. They must have the controllers. Default: everybody may.",
	},
})

// controlPlaneRefModel is k8s_control_plane.x.ref.
type controlPlaneRefModel struct {
	Cluster         types.String         `tfsdk:"cluster"`
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

var controlPlaneRef = tf.NewReference[controlPlaneRefModel](map[string]schema.Attribute{
	"cluster":          required("Name of the cluster."),
	"version":          required("Kubernetes release."),
	"endpoint":         required(publicEndpoint),
	"private_endpoint": required(privateEndpoint),
	"pod_cidr":         schema.StringAttribute{Required: true, CustomType: cidrtypes.IPv4PrefixType{}, MarkdownDescription: "Network of the pods."},
	"service_cidr":     schema.StringAttribute{Required: true, CustomType: cidrtypes.IPv4PrefixType{}, MarkdownDescription: "Network of the services."},
	"node_cidrs":       schema.SetAttribute{Optional: true, ElementType: cidrtypes.IPv4PrefixType{}, MarkdownDescription: "Networks of the subnets for machines."},
	"pod_routes":       schema.MapAttribute{Optional: true, ElementType: iptypes.IPv4AddressType{}, MarkdownDescription: "Routes to pods that all machines have: network of a node's pods to its private address."},
	"dns_ip":           schema.StringAttribute{Required: true, CustomType: iptypes.IPv4AddressType{}, MarkdownDescription: "Service address of cluster DNS."},
	"domain":           required("Domain of cluster DNS."),
	"power_state": schema.StringAttribute{Optional: true, MarkdownDescription: "`stopped` if all machines of the API servers are stopped: then the API is not asked. Default: `running`.",
		Validators: []validator.String{stringvalidator.OneOf(running, stopped)}},
})

const controlPlaneRefDescription = "Control plane of the cluster: `k8s_control_plane.<name>.ref`."

func (m controlPlaneRefModel) cluster(ref pki.Ref) component.Cluster {
	return component.Cluster{
		Name:        m.Cluster.ValueString(),
		Domain:      m.Domain.ValueString(),
		PodCIDR:     tf.Prefix(m.PodCIDR),
		ServiceCIDR: tf.Prefix(m.ServiceCIDR),
		NodeCIDRs:   tf.Prefixes(m.NodeCIDRs),
		PodRoutes:   podRoutesFrom(m.PodRoutes),
		DNSIP:       tf.Addr(m.DNSIP),
		PKI:         ref,
	}
}

// Descriptions of the API server's URLs.
const (
	publicEndpoint  = "Public endpoint: the URL at which people and Terraform reach the API server."
	privateEndpoint = "Private endpoint: the URL at which the cluster's machines reach the API server."
)

// required is an attribute of a reference that takes any string.
func required(description string) schema.StringAttribute {
	return schema.StringAttribute{Required: true, MarkdownDescription: description}
}

// clusterAttribute is the name of the cluster in a reference.
func clusterAttribute() schema.StringAttribute {
	a := required("Name of the cluster.")
	a.Validators = []validator.String{clusterName()}
	return a
}

// podRoutesFrom returns addresses by network, or nil unless all of them are known. An empty map is not nil.
func podRoutesFrom(v types.Map) map[netip.Prefix]netip.Addr {
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

// podRoutesValue is the inverse of podRoutesFrom.
func podRoutesValue(m map[netip.Prefix]netip.Addr) types.Map {
	if m == nil {
		return types.MapNull(iptypes.IPv4AddressType{})
	}
	out := map[string]attr.Value{}
	for network, a := range m {
		out[network.String()] = tf.OptionalAddr(a)
	}
	return types.MapValueMust(iptypes.IPv4AddressType{}, out)
}
