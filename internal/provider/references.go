package provider

import (
	"context"
	"maps"
	"net/netip"
	"slices"

	"github.com/hashicorp/terraform-plugin-framework-nettypes/cidrtypes"
	"github.com/hashicorp/terraform-plugin-framework-nettypes/iptypes"
	"github.com/hashicorp/terraform-plugin-framework-validators/int64validator"
	"github.com/hashicorp/terraform-plugin-framework-validators/stringvalidator"
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

// pkiRefModel is k8s_pki.x.ref.
type pkiRefModel struct {
	Cluster                 types.String `tfsdk:"cluster"`
	Store                   types.String `tfsdk:"store"`
	Prefix                  types.String `tfsdk:"prefix"`
	KMSKeyID                types.String `tfsdk:"kms_key_id"`
	Region                  types.String `tfsdk:"region"`
	KubernetesCA            types.String `tfsdk:"kubernetes_ca_pem"`
	EtcdCA                  types.String `tfsdk:"etcd_ca_pem"`
	FrontProxyCA            types.String `tfsdk:"front_proxy_ca_pem"`
	ServiceAccountPublicKey types.String `tfsdk:"service_account_public_key_pem"`
	Generations             types.Object `tfsdk:"generations"`
	Keys                    types.Map    `tfsdk:"keys"`
}

var pkiRef = tf.NewReference[pkiRefModel](map[string]schema.Attribute{
	"cluster": clusterAttribute(),
	"store": schema.StringAttribute{
		Required: true, MarkdownDescription: "Key store: `ssm` or `state`.",
		Validators: []validator.String{keyStore()},
	},
	"prefix":                         schema.StringAttribute{Optional: true, MarkdownDescription: "Prefix of the parameters' names, for the key store `ssm`."},
	"kms_key_id":                     schema.StringAttribute{Optional: true, MarkdownDescription: "KMS key that encrypts the parameters, for the key store `ssm`."},
	"region":                         schema.StringAttribute{Optional: true, MarkdownDescription: "AWS region of the key store `ssm`."},
	"kubernetes_ca_pem":              schema.StringAttribute{Required: true, MarkdownDescription: "Certificates of the Kubernetes CA, the issuing one first."},
	"etcd_ca_pem":                    schema.StringAttribute{Required: true, MarkdownDescription: "Certificates of the etcd CA, the issuing one first."},
	"front_proxy_ca_pem":             schema.StringAttribute{Required: true, MarkdownDescription: "Certificates of the front-proxy CA, the issuing one first."},
	"service_account_public_key_pem": schema.StringAttribute{Required: true, MarkdownDescription: "Public keys that verify the tokens of service accounts, the signing one first."},
	"generations":                    generationsRef.Input("Generations of each key. The first issues; all are trusted."),
	"keys": schema.MapAttribute{
		Optional: true, Sensitive: true, ElementType: types.StringType,
		MarkdownDescription: "Private keys by name, for the key store `state` only; null otherwise.",
	},
})

const pkiRefDescription = "PKI of the cluster: `k8s_pki.<name>.ref`."

// pkiAttribute is the required argument `pki` of role resources.
func pkiAttribute() schema.SingleNestedAttribute {
	return pkiRef.Input(pkiRefDescription + " It holds certificates, and where the private keys are stored; these are read only during an apply. " +
		"A change renews certificates in place, one machine at a time.")
}

// ref returns the library's reference. Unknown values become empty.
func (m pkiRefModel) ref() pki.Ref {
	return pki.Ref{
		Cluster:                 m.Cluster.ValueString(),
		Store:                   m.Store.ValueString(),
		Prefix:                  m.Prefix.ValueString(),
		KMSKeyID:                m.KMSKeyID.ValueString(),
		Region:                  m.Region.ValueString(),
		KubernetesCA:            m.KubernetesCA.ValueString(),
		EtcdCA:                  m.EtcdCA.ValueString(),
		FrontProxyCA:            m.FrontProxyCA.ValueString(),
		ServiceAccountPublicKey: m.ServiceAccountPublicKey.ValueString(),
		Generations:             generationsFrom(m.Generations),
		Keys:                    tf.StringMap(m.Keys),
	}
}

// pkiRefValue returns the library's reference as an object.
func pkiRefValue(ctx context.Context, r pki.Ref) types.Object {
	keys := types.MapNull(types.StringType)
	if r.Keys != nil {
		keys = tf.StringMapValue(r.Keys)
	}
	return pkiRef.Value(ctx, pkiRefModel{
		Cluster:                 types.StringValue(r.Cluster),
		Store:                   types.StringValue(r.Store),
		Prefix:                  tf.OptionalString(r.Prefix),
		KMSKeyID:                tf.OptionalString(r.KMSKeyID),
		Region:                  tf.OptionalString(r.Region),
		KubernetesCA:            types.StringValue(r.KubernetesCA),
		EtcdCA:                  types.StringValue(r.EtcdCA),
		FrontProxyCA:            types.StringValue(r.FrontProxyCA),
		ServiceAccountPublicKey: types.StringValue(r.ServiceAccountPublicKey),
		Generations:             generationsValue(ctx, r.Generations),
		Keys:                    keys,
	})
}

// pkiRefFrom reads the argument `pki`. It returns false if part of it is unknown.
func pkiRefFrom(ctx context.Context, o types.Object, diags *diag.Diagnostics) (pki.Ref, bool) {
	m, ok := pkiRef.Read(ctx, o, diags)
	return m.ref(), ok && tf.AllKnown(o)
}

// lbRefModel is k8s_lb.x.ref and k8s_nlb.x.ref.
type lbRefModel struct {
	Cluster         types.String `tfsdk:"cluster"`
	Controllers     types.Map    `tfsdk:"controllers"`
	Endpoint        types.String `tfsdk:"endpoint"`
	PrivateEndpoint types.String `tfsdk:"private_endpoint"`
	Names           types.List   `tfsdk:"names"`
	Machines        types.Map    `tfsdk:"machines"`
	NoticeSeconds   types.Int64  `tfsdk:"notice_seconds"`
}

var lbRef = tf.NewReference[lbRefModel](map[string]schema.Attribute{
	"cluster": schema.StringAttribute{Optional: true, MarkdownDescription: "Name of the cluster. Default: not checked."},
	"controllers": schema.MapAttribute{
		Optional: true, ElementType: types.StringType,
		MarkdownDescription: "Private addresses of the machines behind it, by name. They must be the hosts of the control plane. Default: not checked.",
	},
	"endpoint":         required(publicEndpoint),
	"private_endpoint": required(privateEndpoint),
	"names": schema.ListAttribute{
		Required: true, ElementType: types.StringType, MarkdownDescription: "Names and addresses in the endpoints' URLs. They are in the API servers' certificates.",
	},
	"machines": schema.MapAttribute{
		Optional: true, ElementType: types.StringType,
		MarkdownDescription: "Private addresses of its own machines, by name. `allowed_cidrs` of the control plane must have them. Default: not checked.",
	},
	"notice_seconds": schema.Int64Attribute{
		Optional: true, MarkdownDescription: "Seconds within which the load balancer notices that an API server is not ready. So long does an API server still serve when it is stopped. Default: 3.",
		Validators: []validator.Int64{int64validator.Between(1, maxNotice)},
	},
})

// maxNotice is how long an API server may still serve when it is stopped: systemd kills it after 90 seconds, and
// the requests under way get up to 60.
const maxNotice = 25

// lbRefFrom reads the argument `lb`. If the argument is unknown, all of its attributes are.
func lbRefFrom(ctx context.Context, o types.Object, diags *diag.Diagnostics) lbRefModel {
	m, ok := lbRef.Read(ctx, o, diags)
	if !ok {
		unknown := types.StringUnknown()
		return lbRefModel{unknown, types.MapUnknown(types.StringType), unknown, unknown, types.ListUnknown(types.StringType), types.MapUnknown(types.StringType), types.Int64Unknown()}
	}
	return m
}

// backends returns the addresses of the controllers by name, zero where they are unknown; nil if
// nothing is known of them.
func (m lbRefModel) backends() map[string]netip.Addr {
	return addressesByName(m.Controllers)
}

// machines returns the load balancer's own machines, as far as they are known.
func (m lbRefModel) machines() (out []component.Host) {
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
