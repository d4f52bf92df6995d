package keys

import (
	"context"
	"strings"
	"time"

	"github.com/hashicorp/terraform-plugin-framework-validators/setvalidator"
	"github.com/hashicorp/terraform-plugin-framework-validators/stringvalidator"
	"github.com/hashicorp/terraform-plugin-framework/path"
	"github.com/hashicorp/terraform-plugin-framework/resource"
	"github.com/hashicorp/terraform-plugin-framework/resource/schema"
	"github.com/hashicorp/terraform-plugin-framework/resource/schema/planmodifier"
	"github.com/hashicorp/terraform-plugin-framework/resource/schema/setdefault"
	"github.com/hashicorp/terraform-plugin-framework/resource/schema/stringplanmodifier"
	"github.com/hashicorp/terraform-plugin-framework/schema/validator"
	"github.com/hashicorp/terraform-plugin-framework/types"

	awsobject "github.com/k8s-from-scratch/terraform-provider-k8s/infra/aws/object"
	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/aws/oidc"
	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/issuer"
	"github.com/k8s-from-scratch/terraform-provider-k8s/internal/provider/argument"
	"github.com/k8s-from-scratch/terraform-provider-k8s/internal/provider/owned"
	"github.com/k8s-from-scratch/terraform-provider-k8s/internal/provider/reference"
	"github.com/k8s-from-scratch/terraform-provider-k8s/internal/provider/session"
	"github.com/k8s-from-scratch/terraform-provider-k8s/internal/provider/tf"
)

// workloadIdentityResource is the issuer of service accounts' tokens as AWS knows it.
type workloadIdentityResource struct {
	owned.Resource[workloadIdentityModel, *workloadIdentityModel]
}

func NewWorkloadIdentity() resource.Resource {
	r := &workloadIdentityResource{}
	r.Resource = owned.Resource[workloadIdentityModel, *workloadIdentityModel]{
		Kind: r, Name: "workload_identity", What: "issuer", By: "id",
		WhenGone:  "Pods cannot assume roles of AWS until the next apply has made it again. Its documents stay in the bucket meanwhile.",
		Deadlines: tf.Deadlines{Create: issuerTimeout, Read: argument.ReadTimeout, Update: issuerTimeout, Delete: issuerTimeout},
	}
	return r
}

// issuerTimeout is long enough for a cache in front of the documents.
const issuerTimeout = 10 * time.Minute

type workloadIdentityModel struct {
	owned.Model
	PKI         types.Object `tfsdk:"pki"`
	Issuer      types.String `tfsdk:"issuer"`
	Bucket      types.String `tfsdk:"bucket"`
	Prefix      types.String `tfsdk:"prefix"`
	Region      types.String `tfsdk:"region"`
	Audiences   types.Set    `tfsdk:"audiences"`
	ProviderARN types.String `tfsdk:"provider_arn"`
	KeyIDs      types.List   `tfsdk:"key_ids"`
	Ref         types.Object `tfsdk:"ref"`
}

// Schema implements resource.Resource.
func (r *workloadIdentityResource) Schema(ctx context.Context, _ resource.SchemaRequest, resp *resource.SchemaResponse) {
	keep := []planmodifier.String{stringplanmodifier.UseStateForUnknown()}
	inBucket := stringvalidator.AlsoRequires(path.MatchRoot("bucket"))
	resp.Schema = schema.Schema{
		MarkdownDescription: "Makes AWS accept the tokens of a cluster's service accounts, so that pods assume roles without keys: an OpenID Connect provider in IAM, and the two documents in which the issuer shows its public keys. " +
			"The guide [Roles for pods](../guides/roles-for-pods.md) shows the whole way.",
		Attributes: owned.With(ctx, r.Deadlines, map[string]schema.Attribute{
			"id": schema.StringAttribute{
				Computed: true, MarkdownDescription: "Identifier: the URL of the issuer. Import takes it.", PlanModifiers: keep,
			},
			"pki": reference.OfPKI.Input(reference.PKIDescription + " Only public keys are read. A new generation of `service_account` is shown in place, before the control plane signs with it."),
			"issuer": schema.StringAttribute{
				Optional: true, Computed: true,
				MarkdownDescription: "URL of the issuer, which everybody can reach: without a port, a query and a slash at its end. A change replaces the issuer. Default: the URL of `prefix` in `bucket`.",
				Validators:          []validator.String{tf.Check("an issuer's URL", issuer.Check), stringvalidator.AtLeastOneOf(path.MatchRoot("bucket"))},
			},
			"bucket": schema.StringAttribute{
				Optional: true,
				MarkdownDescription: "Bucket in which the documents are written. Everybody must be able to read them, which S3 blocks in new buckets. Default: none; somebody else publishes what " +
					"`provider::k8s::issuer_documents` returns, before this resource.",
				Validators: []validator.String{argument.BucketName()},
			},
			"prefix": schema.StringAttribute{
				Optional: true, Computed: true, MarkdownDescription: "Prefix of the documents' keys. Default: `k8s/<cluster>/issuer/`.",
				Validators: []validator.String{argument.ObjectPrefix(), inBucket},
			},
			"region": schema.StringAttribute{Optional: true, MarkdownDescription: "AWS region of the bucket. Default: the provider's region.", Validators: []validator.String{inBucket}},
			"audiences": schema.SetAttribute{
				Optional: true, Computed: true, ElementType: types.StringType, Default: setdefault.StaticValue(tf.StringSet(oidc.DefaultAudience)),
				MarkdownDescription: "Audiences of tokens that AWS accepts. Changed in place. Default: `" + oidc.DefaultAudience + "`.",
				Validators:          []validator.Set{setvalidator.SizeBetween(1, 100), setvalidator.ValueStringsAre(stringvalidator.LengthBetween(1, 255))},
			},
			"provider_arn": schema.StringAttribute{Computed: true, MarkdownDescription: "ARN of the OpenID Connect provider: the principal in trust policies of roles.", PlanModifiers: keep},
			"key_ids": schema.ListAttribute{
				Computed: true, ElementType: types.StringType, MarkdownDescription: "Ids of the public keys in the documents, the signing one first.",
			},
			"ref": reference.OfWorkloadIdentity.Output("Reference: the value for `workload_identity` of `k8s_control_plane`."),
		}),
	}
}

// Plan implements owned.Kind.
func (r *workloadIdentityResource) Plan(ctx context.Context, p *owned.Plan[workloadIdentityModel]) {
	plan := &p.Plan
	cluster := reference.ClusterOf(ctx, plan.PKI, p.Diags)
	plan.Prefix = p.Config.Prefix
	if plan.Prefix.IsNull() && !plan.Bucket.IsNull() {
		plan.Prefix = types.StringUnknown()
		if !cluster.IsUnknown() {
			plan.Prefix = types.StringValue("k8s/" + cluster.ValueString() + "/issuer/")
		}
	}
	if plan.Issuer = p.Config.Issuer; plan.Issuer.IsNull() {
		plan.Issuer = types.StringUnknown()
		if client, err := r.Session.AWS(ctx); err == nil && tf.AllKnown(plan.Bucket, plan.Prefix, plan.Region) {
			plan.Issuer = types.StringValue(awsobject.URL(plan.place(), client.Region))
			if strings.Contains(plan.Bucket.ValueString(), ".") {
				p.Diags.AddAttributeError(path.Root("bucket"), "A bucket whose URL is no issuer", "The certificate of S3 is not for a bucket with a dot in its name: use another bucket, or set issuer to a URL of your own.")
			}
			if err := issuer.Check(plan.Issuer.ValueString()); err != nil {
				p.Diags.AddAttributeError(path.Root("prefix"), "Unusable issuer", "The issuer would be "+plan.Issuer.ValueString()+": "+err.Error()+".")
			}
		}
	}
	if !p.New && !plan.Issuer.Equal(p.State.Issuer) {
		p.Response.RequiresReplace.Append(path.Root("issuer"))
		plan.ProviderARN = types.StringUnknown()
	}
	plan.outputs(ctx, p)
}

// outputs sets what is computed of other arguments.
func (m *workloadIdentityModel) outputs(ctx context.Context, p *owned.Plan[workloadIdentityModel]) {
	m.ID, m.KeyIDs = m.Issuer, types.ListUnknown(types.StringType)
	keys, _ := reference.OfPKI.Read(ctx, m.PKI, p.Diags)
	if pem := keys.ServiceAccountPublicKey; !m.PKI.IsUnknown() && !pem.IsUnknown() {
		ids, err := issuer.KeyIDs(pem.ValueString())
		if err != nil {
			p.Diags.AddAttributeError(path.Root("pki"), "Unusable public keys", argument.Upper(err.Error())+".")
			return
		}
		m.KeyIDs = tf.StringsValue(ids)
	}
	m.reference(ctx, reference.ClusterOf(ctx, m.PKI, p.Diags))
}

func (m *workloadIdentityModel) reference(ctx context.Context, cluster types.String) {
	m.Ref = reference.OfWorkloadIdentity.Value(ctx, reference.WorkloadIdentity{Cluster: cluster, Issuer: m.Issuer})
}

// place is where the documents are written; the zero Ref if somebody else publishes them.
func (m *workloadIdentityModel) place() awsobject.Ref {
	return awsobject.Ref{Bucket: m.Bucket.ValueString(), Key: m.Prefix.ValueString(), Region: m.Region.ValueString()}
}

// spec is the wanted state.
func (m *workloadIdentityModel) spec(ctx context.Context, d *session.Session, op *owned.Operation) (oidc.Spec, error) {
	account, caller, err := d.Identity(ctx, op.Client)
	keys, _ := reference.OfPKI.Read(ctx, m.PKI, op.Diags)
	return oidc.Spec{
		Cluster: keys.Cluster.ValueString(), ARN: oidc.ARN(account, caller, m.Issuer.ValueString()), Issuer: m.Issuer.ValueString(), Audiences: tf.Strings(m.Audiences.Elements()),
		PublicKeysPEM: keys.ServiceAccountPublicKey.ValueString(), Place: m.place(), Tags: tf.StringMap(m.Tags), RemoveTags: op.RemoveTags, Claim: op.Ownership.Claim,
	}, err
}
