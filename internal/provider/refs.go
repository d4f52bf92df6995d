package provider

import (
	"context"

	"github.com/hashicorp/terraform-plugin-framework-validators/stringvalidator"
	"github.com/hashicorp/terraform-plugin-framework/attr"
	"github.com/hashicorp/terraform-plugin-framework/diag"
	"github.com/hashicorp/terraform-plugin-framework/resource/schema"
	"github.com/hashicorp/terraform-plugin-framework/schema/validator"
	"github.com/hashicorp/terraform-plugin-framework/types"

	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/pki"
)

// References are objects that one resource gives and others take: enough to
// work with the thing, nothing secret unless said so.

// networkRefModel is k8s_network.x.ref.
type networkRefModel struct {
	Cluster          types.String `tfsdk:"cluster"`
	VPCID            types.String `tfsdk:"vpc_id"`
	NodeCIDR         types.String `tfsdk:"node_cidr"`
	VPCCIDR          types.String `tfsdk:"vpc_cidr"`
	Subnets          types.List   `tfsdk:"subnets"`
	SecurityGroupIDs types.Map    `tfsdk:"security_group_ids"`
}

type subnetModel struct {
	ID   types.String `tfsdk:"id"`
	CIDR types.String `tfsdk:"cidr"`
}

var subnetType = types.ObjectType{AttrTypes: map[string]attr.Type{
	"id":   types.StringType,
	"cidr": types.StringType,
}}

var networkRefType = types.ObjectType{AttrTypes: map[string]attr.Type{
	"cluster":            types.StringType,
	"vpc_id":             types.StringType,
	"vpc_cidr":           types.StringType,
	"node_cidr":          types.StringType,
	"subnets":            types.ListType{ElemType: subnetType},
	"security_group_ids": types.MapType{ElemType: types.StringType},
}}

// networkRefAttribute is the required input `network`.
func networkRefAttribute(description string) schema.SingleNestedAttribute {
	return schema.SingleNestedAttribute{
		Required: true, MarkdownDescription: description,
		Attributes: map[string]schema.Attribute{
			"cluster":   schema.StringAttribute{Required: true, MarkdownDescription: "Name of the cluster.", Validators: []validator.String{clusterName()}},
			"vpc_id":    schema.StringAttribute{Required: true, MarkdownDescription: "VPC."},
			"vpc_cidr":  schema.StringAttribute{Required: true, MarkdownDescription: "Network of the VPC.", Validators: []validator.String{canonicalCIDR(8, 28)}},
			"node_cidr": schema.StringAttribute{Required: true, MarkdownDescription: "Network of the machines.", Validators: []validator.String{canonicalCIDR(8, 28)}},
			"subnets": schema.ListNestedAttribute{
				Required: true, MarkdownDescription: "Subnets for machines.",
				NestedObject: schema.NestedAttributeObject{Attributes: map[string]schema.Attribute{
					"id":   schema.StringAttribute{Required: true, MarkdownDescription: "Subnet. Routes to pods are added to the route table that holds for it."},
					"cidr": schema.StringAttribute{Required: true, MarkdownDescription: "Its network."},
				}},
			},
			"security_group_ids": schema.MapAttribute{
				Required: true, ElementType: types.StringType,
				MarkdownDescription: "Security group by role: `lb`, `controller`, `worker`.",
			},
		},
	}
}

func (m networkRefModel) value() types.Object {
	return types.ObjectValueMust(networkRefType.AttrTypes, map[string]attr.Value{
		"cluster": m.Cluster, "vpc_id": m.VPCID, "vpc_cidr": m.VPCCIDR, "node_cidr": m.NodeCIDR,
		"subnets": m.Subnets, "security_group_ids": m.SecurityGroupIDs,
	})
}

func (m subnetModel) value() types.Object {
	return types.ObjectValueMust(subnetType.AttrTypes, map[string]attr.Value{
		"id": m.ID, "cidr": m.CIDR,
	})
}

// subnets reads the subnets whose every attribute is known.
func (m networkRefModel) subnets(ctx context.Context, diags *diag.Diagnostics) []subnetModel {
	var out []subnetModel
	for _, e := range m.Subnets.Elements() {
		if o, ok := e.(types.Object); ok {
			if s, ok := object[subnetModel](ctx, o, diags); ok {
				out = append(out, s)
			}
		}
	}
	return out
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

var pkiRefType = types.ObjectType{AttrTypes: map[string]attr.Type{
	"cluster":                        types.StringType,
	"store":                          types.StringType,
	"prefix":                         types.StringType,
	"kms_key_id":                     types.StringType,
	"region":                         types.StringType,
	"kubernetes_ca_pem":              types.StringType,
	"etcd_ca_pem":                    types.StringType,
	"front_proxy_ca_pem":             types.StringType,
	"service_account_public_key_pem": types.StringType,
	"generations":                    generationsType,
	"keys":                           types.MapType{ElemType: types.StringType},
}}

const keysDescription = "Private keys by name, with the key store `state` only; null otherwise."

// pkiRefAttribute is the required input `pki` of role resources.
func pkiRefAttribute() schema.SingleNestedAttribute {
	return schema.SingleNestedAttribute{
		Required: true,
		MarkdownDescription: "The cluster's PKI: `k8s_pki.<name>.ref`. Certificates and the places of private keys, which are fetched only while applying. " +
			"A change renews certificates in place, one machine at a time.",
		Attributes: map[string]schema.Attribute{
			"cluster":                        schema.StringAttribute{Required: true, MarkdownDescription: "Name of the cluster.", Validators: []validator.String{clusterName()}},
			"store":                          schema.StringAttribute{Required: true, MarkdownDescription: "Key store: `ssm` or `state`.", Validators: []validator.String{keyStore()}},
			"prefix":                         schema.StringAttribute{Optional: true, MarkdownDescription: "Prefix of the names in the key store."},
			"kms_key_id":                     schema.StringAttribute{Optional: true, MarkdownDescription: "KMS key that encrypts the key store."},
			"region":                         schema.StringAttribute{Optional: true, MarkdownDescription: "Region of the key store."},
			"kubernetes_ca_pem":              schema.StringAttribute{Required: true, MarkdownDescription: "Certificates of the Kubernetes CA, the issuing one first."},
			"etcd_ca_pem":                    schema.StringAttribute{Required: true, MarkdownDescription: "Certificates of the etcd CA, the issuing one first."},
			"front_proxy_ca_pem":             schema.StringAttribute{Required: true, MarkdownDescription: "Certificates of the front-proxy CA, the issuing one first."},
			"service_account_public_key_pem": schema.StringAttribute{Required: true, MarkdownDescription: "Public keys that verify service-account tokens."},
			"generations": schema.SingleNestedAttribute{
				Required: true, MarkdownDescription: generationsDescription, Attributes: refGenerations(false),
			},
			"keys": schema.MapAttribute{
				Optional: true, Sensitive: true, ElementType: types.StringType,
				MarkdownDescription: keysDescription,
			},
		},
	}
}

// keyStore accepts the names of the key stores there are.
func keyStore() validator.String { return stringvalidator.OneOf(pki.StoreSSM, pki.StoreState) }

func (m pkiRefModel) value() types.Object {
	return types.ObjectValueMust(pkiRefType.AttrTypes, map[string]attr.Value{
		"cluster": m.Cluster, "store": m.Store, "prefix": m.Prefix, "kms_key_id": m.KMSKeyID, "region": m.Region,
		"kubernetes_ca_pem": m.KubernetesCA, "etcd_ca_pem": m.EtcdCA, "front_proxy_ca_pem": m.FrontProxyCA,
		"service_account_public_key_pem": m.ServiceAccountPublicKey, "generations": m.Generations, "keys": m.Keys,
	})
}

// ref turns the model into the library's reference. Unknown values become empty.
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
		Keys:                    stringMap(m.Keys),
	}
}

// pkiRefValue turns the library's reference into the object.
func pkiRefValue(r pki.Ref) types.Object {
	keys := types.MapNull(types.StringType)
	if r.Keys != nil {
		keys = stringMapValue(r.Keys)
	}
	return pkiRefModel{
		Cluster:                 types.StringValue(r.Cluster),
		Store:                   types.StringValue(r.Store),
		Prefix:                  optionalString(r.Prefix),
		KMSKeyID:                optionalString(r.KMSKeyID),
		Region:                  optionalString(r.Region),
		KubernetesCA:            types.StringValue(r.KubernetesCA),
		EtcdCA:                  types.StringValue(r.EtcdCA),
		FrontProxyCA:            types.StringValue(r.FrontProxyCA),
		ServiceAccountPublicKey: types.StringValue(r.ServiceAccountPublicKey),
		Generations:             generationsValue(r.Generations),
		Keys:                    keys,
	}.value()
}

// pkiRefFrom reads the input `pki`; false means that not all of it is known.
func pkiRefFrom(ctx context.Context, o types.Object, diags *diag.Diagnostics) (pki.Ref, bool) {
	m, ok := object[pkiRefModel](ctx, o, diags)
	return m.ref(), ok && allKnown(o)
}
