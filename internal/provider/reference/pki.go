package reference

import (
	"context"

	"github.com/hashicorp/terraform-plugin-framework/diag"
	"github.com/hashicorp/terraform-plugin-framework/path"
	"github.com/hashicorp/terraform-plugin-framework/resource"
	"github.com/hashicorp/terraform-plugin-framework/resource/schema"
	"github.com/hashicorp/terraform-plugin-framework/schema/validator"
	"github.com/hashicorp/terraform-plugin-framework/types"

	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/pki"
	"github.com/k8s-from-scratch/terraform-provider-k8s/internal/provider/argument"
	"github.com/k8s-from-scratch/terraform-provider-k8s/internal/provider/tf"
)

// PKI is k8s_pki.x.ref.
type PKI struct {
	Cluster                 types.String `tfsdk:"cluster"`
	Store                   types.String `tfsdk:"store"`
	Prefix                  types.String `tfsdk:"prefix"`
	KMSKeyID                types.String `tfsdk:"kms_key_id"`
	Region                  types.String `tfsdk:"region"`
	KubernetesCA            types.String `tfsdk:"kubernetes_ca_pem"`
	EtcdCA                  types.String `tfsdk:"etcd_ca_pem"`
	FrontProxyCA            types.String `tfsdk:"front_proxy_ca_pem"`
	KubernetesCAChain       types.String `tfsdk:"kubernetes_ca_chain_pem"`
	ServiceAccountPublicKey types.String `tfsdk:"service_account_public_key_pem"`
	Generations             types.Object `tfsdk:"generations"`
	Keys                    types.Map    `tfsdk:"keys"`
}

var OfPKI = tf.NewReference[PKI](map[string]schema.Attribute{
	"cluster": clusterAttribute(),
	"store": schema.StringAttribute{
		Required: true, MarkdownDescription: "Key store: `ssm` or `state`.",
		Validators: []validator.String{argument.KeyStore()},
	},
	"prefix":                         schema.StringAttribute{Optional: true, MarkdownDescription: "Prefix of the parameters' names, for the key store `ssm`."},
	"kms_key_id":                     schema.StringAttribute{Optional: true, MarkdownDescription: "KMS key that encrypts the parameters, for the key store `ssm`."},
	"region":                         schema.StringAttribute{Optional: true, MarkdownDescription: "AWS region of the key store `ssm`."},
	"kubernetes_ca_pem":              schema.StringAttribute{Required: true, MarkdownDescription: "Certificates of the Kubernetes CA, the issuing one first."},
	"etcd_ca_pem":                    schema.StringAttribute{Required: true, MarkdownDescription: "Certificates of the etcd CA, the issuing one first."},
	"front_proxy_ca_pem":             schema.StringAttribute{Required: true, MarkdownDescription: "Certificates of the front-proxy CA, the issuing one first."},
	"kubernetes_ca_chain_pem":        schema.StringAttribute{Optional: true, MarkdownDescription: "Certificates above given generations of the Kubernetes CA. Servers are verified with them, clients never. Default: none."},
	"service_account_public_key_pem": schema.StringAttribute{Required: true, MarkdownDescription: "Public keys that verify the tokens of service accounts, the signing one first."},
	"generations":                    OfGenerations.Input("Generations of each key. The first issues; all are trusted."),
	"keys": schema.MapAttribute{
		Optional: true, Sensitive: true, ElementType: types.StringType,
		MarkdownDescription: "Private keys by name, for the key store `state` only; null otherwise.",
	},
})

const PKIDescription = "PKI of the cluster: `k8s_pki.<name>.ref`."

// Ref returns the library's reference. Unknown values become empty.
func (m PKI) Ref() pki.Ref {
	return pki.Ref{
		Cluster:                 m.Cluster.ValueString(),
		Store:                   m.Store.ValueString(),
		Prefix:                  m.Prefix.ValueString(),
		KMSKeyID:                m.KMSKeyID.ValueString(),
		Region:                  m.Region.ValueString(),
		KubernetesCA:            m.KubernetesCA.ValueString(),
		EtcdCA:                  m.EtcdCA.ValueString(),
		FrontProxyCA:            m.FrontProxyCA.ValueString(),
		KubernetesCAChain:       m.KubernetesCAChain.ValueString(),
		ServiceAccountPublicKey: m.ServiceAccountPublicKey.ValueString(),
		Generations:             GenerationsFrom(m.Generations),
		Keys:                    tf.StringMap(m.Keys),
	}
}

// PKIValue returns the library's reference as an object.
func PKIValue(ctx context.Context, r pki.Ref) types.Object {
	keys := types.MapNull(types.StringType)
	if r.Keys != nil {
		keys = tf.StringMapValue(r.Keys)
	}
	return OfPKI.Value(ctx, PKI{
		Cluster:                 types.StringValue(r.Cluster),
		Store:                   types.StringValue(r.Store),
		Prefix:                  tf.OptionalString(r.Prefix),
		KMSKeyID:                tf.OptionalString(r.KMSKeyID),
		Region:                  tf.OptionalString(r.Region),
		KubernetesCA:            types.StringValue(r.KubernetesCA),
		EtcdCA:                  types.StringValue(r.EtcdCA),
		FrontProxyCA:            types.StringValue(r.FrontProxyCA),
		KubernetesCAChain:       tf.OptionalString(r.KubernetesCAChain),
		ServiceAccountPublicKey: types.StringValue(r.ServiceAccountPublicKey),
		Generations:             GenerationsValue(ctx, r.Generations),
		Keys:                    keys,
	})
}

// PKIFrom reads the argument `pki`. It returns false if part of it is unknown.
func PKIFrom(ctx context.Context, o types.Object, diags *diag.Diagnostics) (pki.Ref, bool) {
	m, ok := OfPKI.Read(ctx, o, diags)
	return m.Ref(), ok && tf.AllKnown(o)
}

// ClusterOf returns the cluster's name in the argument `pki`, unknown if that is unknown.
func ClusterOf(ctx context.Context, o types.Object, diags *diag.Diagnostics) types.String {
	m, ok := OfPKI.Read(ctx, o, diags)
	if !ok {
		return types.StringUnknown()
	}
	return m.Cluster
}

// PKIIn returns the attribute `pki` of a reference: unknown if the reference is, null if that is null.
func PKIIn(ref types.Object) types.Object {
	if ref.IsUnknown() {
		return OfPKI.Unknown()
	}
	if o, ok := ref.Attributes()["pki"].(types.Object); ok {
		return o
	}
	return types.ObjectNull(OfPKI.Type().AttrTypes)
}

// PlannedPKI returns the reference to the cluster's keys in the state and in the plan of a resource that exists, and
// the argument that holds it: `pki`, or a reference that carries it.
func PlannedPKI(ctx context.Context, req resource.ModifyPlanRequest, diags *diag.Diagnostics) (was, planned types.Object, at path.Path) {
	at = path.Root("pki")
	in := func(o types.Object) types.Object { return o }
	for _, name := range []string{"etcd", "control_plane"} {
		if _, carries := req.Plan.Schema.GetAttributes()[name]; carries {
			at, in = path.Root(name), PKIIn
		}
	}
	diags.Append(req.State.GetAttribute(ctx, at, &was)...)
	diags.Append(req.Plan.GetAttribute(ctx, at, &planned)...)
	return in(was), in(planned), at
}

// pkiArgument returns a reference as an import id has it, without private keys.
func pkiArgument(r pki.Ref) map[string]any {
	generations := map[string]any{}
	for _, k := range pki.Kinds() {
		generations[string(k)] = r.Generations.Of(k)
	}
	out := map[string]any{
		"cluster": r.Cluster, "store": r.Store, "kubernetes_ca_pem": r.KubernetesCA, "etcd_ca_pem": r.EtcdCA, "front_proxy_ca_pem": r.FrontProxyCA,
		"service_account_public_key_pem": r.ServiceAccountPublicKey, "generations": generations,
	}
	for name, text := range map[string]string{"kubernetes_ca_chain_pem": r.KubernetesCAChain, "prefix": r.Prefix, "kms_key_id": r.KMSKeyID, "region": r.Region} {
		if text != "" {
			out[name] = text
		}
	}
	return out
}
