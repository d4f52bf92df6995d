package keys

import (
	"context"
	"errors"
	"fmt"

	"github.com/hashicorp/terraform-plugin-framework-timeouts/resource/timeouts"
	"github.com/hashicorp/terraform-plugin-framework-validators/listvalidator"
	"github.com/hashicorp/terraform-plugin-framework/diag"
	"github.com/hashicorp/terraform-plugin-framework/path"
	"github.com/hashicorp/terraform-plugin-framework/resource"
	"github.com/hashicorp/terraform-plugin-framework/resource/schema"
	"github.com/hashicorp/terraform-plugin-framework/schema/validator"
	"github.com/hashicorp/terraform-plugin-framework/types"

	infraaws "github.com/k8s-from-scratch/terraform-provider-k8s/infra/aws"
	awsobject "github.com/k8s-from-scratch/terraform-provider-k8s/infra/aws/object"
	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/finding"
	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/keycopy"
	"github.com/k8s-from-scratch/terraform-provider-k8s/internal/provider/argument"
	"github.com/k8s-from-scratch/terraform-provider-k8s/internal/provider/reference"
	"github.com/k8s-from-scratch/terraform-provider-k8s/internal/provider/session"
	"github.com/k8s-from-scratch/terraform-provider-k8s/internal/provider/tf"
)

var (
	_ resource.ResourceWithConfigure   = (*pkiCopyResource)(nil)
	_ resource.ResourceWithModifyPlan  = (*pkiCopyResource)(nil)
	_ resource.ResourceWithImportState = (*pkiCopyResource)(nil)
)

var pkiCopyDeadlines = tf.Deadlines{Create: argument.PKITimeout, Read: argument.ReadTimeout, Update: argument.PKITimeout}

type pkiCopyResource struct{ session.Base }

func NewPKICopy() resource.Resource { return &pkiCopyResource{} }

type pkiCopyModel struct {
	ID         types.String   `tfsdk:"id"`
	PKI        types.Object   `tfsdk:"pki"`
	Recipients types.List     `tfsdk:"recipients"`
	Bucket     types.String   `tfsdk:"bucket"`
	Prefix     types.String   `tfsdk:"prefix"`
	Region     types.String   `tfsdk:"region"`
	KMSKeyID   types.String   `tfsdk:"kms_key_id"`
	Key        types.String   `tfsdk:"key"`
	SHA256     types.String   `tfsdk:"sha256"`
	Drift      types.Map      `tfsdk:"drift"`
	Timeouts   timeouts.Value `tfsdk:"timeouts"`
}

// Metadata implements resource.Resource.
func (r *pkiCopyResource) Metadata(_ context.Context, _ resource.MetadataRequest, resp *resource.MetadataResponse) {
	resp.TypeName = "k8s_pki_copy"
}

// Schema implements resource.Resource.
func (r *pkiCopyResource) Schema(ctx context.Context, _ resource.SchemaRequest, resp *resource.SchemaResponse) {
	resp.Schema = schema.Schema{
		MarkdownDescription: "A copy of a cluster's keys in an S3 bucket, encrypted with [age](https://age-encryption.org). `restore_from` of `k8s_pki` restores the keys from it. **Destroying this " +
			"resource leaves all copies in the bucket.**",
		Attributes: map[string]schema.Attribute{
			"id":  schema.StringAttribute{Computed: true, MarkdownDescription: "Identifier: `<bucket>/<prefix>`."},
			"pki": reference.OfPKI.Input(reference.PKIDescription + " The private keys are read from its key store only when a copy is written. A change writes a copy."),
			"recipients": schema.ListAttribute{
				Required: true, ElementType: types.StringType,
				MarkdownDescription: "Recipients: public halves of age identities, as `age-keygen` prints them (`age1...`). Each identity decrypts the copy. Post-quantum recipients (`age1pq1...`) cannot be " +
					"mixed with others. A change encrypts the copy again, in place; earlier copies stay readable for their recipients.",
				Validators: []validator.List{
					listvalidator.SizeAtLeast(1), listvalidator.UniqueValues(),
					listvalidator.ValueStringsAre(tf.Check("an age recipient", keycopy.CheckRecipient)), recipientList{},
				},
			},
			"bucket": schema.StringAttribute{
				Required: true, MarkdownDescription: "Bucket for the copy. It may be another account's. A change writes a copy to the new bucket, and leaves the earlier copies in the old bucket.",
				Validators: []validator.String{argument.BucketName()},
			},
			"prefix": schema.StringAttribute{
				Optional: true, Computed: true,
				MarkdownDescription: "Prefix of the object's key. A change writes a copy with the new prefix, and leaves the old copy. Default: `k8s/<cluster>/keys/`.",
				Validators:          []validator.String{argument.ObjectPrefix()},
			},
			"region": schema.StringAttribute{Optional: true, MarkdownDescription: "AWS region of the bucket. Default: the provider's region."},
			"kms_key_id": schema.StringAttribute{
				Optional: true,
				MarkdownDescription: "KMS key (id, ARN or alias) with which S3 encrypts the object once more (SSE-KMS). A change writes the copy again, in place. Without the KMS key nobody can read the copy, " +
					"so do not use a key of the account whose loss the copy is meant for. Default: as the bucket says.",
			},
			"key":      schema.StringAttribute{Computed: true, MarkdownDescription: "Key of the object with the present copy: `restore_from.key` of `k8s_pki`. Keep it together with the identities."},
			"sha256":   schema.StringAttribute{Computed: true, MarkdownDescription: "SHA-256 of the encrypted object, in hex, by which a refresh sees whether it is still the same."},
			"drift":    tf.DriftAttribute(),
			"timeouts": pkiCopyDeadlines.Attribute(ctx),
		},
	}
}

// recipientList validates the recipients together.
type recipientList struct{}

func (recipientList) Description(context.Context) string { return "Recipients that can be mixed." }
func (v recipientList) MarkdownDescription(ctx context.Context) string {
	return v.Description(ctx)
}

func (recipientList) ValidateList(_ context.Context, req validator.ListRequest, resp *validator.ListResponse) {
	list := tf.Strings(req.ConfigValue.Elements())
	if len(list) < 2 || !tf.AllKnown(req.ConfigValue) {
		return
	}
	for _, s := range list {
		if keycopy.CheckRecipient(s) != nil {
			return // said of the element
		}
	}
	if err := keycopy.CheckRecipients(list); err != nil {
		resp.Diagnostics.AddAttributeError(req.Path, "Unusable recipients", err.Error()+".")
	}
}

// ModifyPlan plans another object if anything but timeouts changes.
func (r *pkiCopyResource) ModifyPlan(ctx context.Context, req resource.ModifyPlanRequest, resp *resource.ModifyPlanResponse) {
	if req.Plan.Raw.IsNull() {
		return
	}
	var plan, state pkiCopyModel
	var prefix types.String
	resp.Diagnostics.Append(req.Plan.Get(ctx, &plan)...)
	resp.Diagnostics.Append(req.Config.GetAttribute(ctx, path.Root("prefix"), &prefix)...)
	if !req.State.Raw.IsNull() {
		resp.Diagnostics.Append(req.State.Get(ctx, &state)...)
	}
	if resp.Diagnostics.HasError() {
		return
	}
	if plan.Prefix = prefix; prefix.IsNull() {
		plan.Prefix = types.StringUnknown()
		if cluster := reference.ClusterOf(ctx, plan.PKI, &resp.Diagnostics); !cluster.IsUnknown() {
			plan.Prefix = types.StringValue("k8s/" + cluster.ValueString() + "/keys/")
		}
	}
	plan.ID = types.StringUnknown()
	if tf.AllKnown(plan.Bucket, plan.Prefix) {
		plan.ID = types.StringValue(plan.Bucket.ValueString() + "/" + plan.Prefix.ValueString())
	}
	if plan.Key, plan.SHA256 = state.Key, state.SHA256; req.State.Raw.IsNull() || plan.writes(state) {
		plan.Key, plan.SHA256 = types.StringUnknown(), types.StringUnknown()
	}
	resp.Diagnostics.Append(resp.Plan.Set(ctx, &plan)...)
}

// writes reports whether a change of the state to m writes a copy.
func (m pkiCopyModel) writes(state pkiCopyModel) bool {
	return len(state.Drift.Elements()) > 0 || !m.PKI.Equal(state.PKI) || !m.Recipients.Equal(state.Recipients) || !m.Bucket.Equal(state.Bucket) ||
		!m.Prefix.Equal(state.Prefix) || !m.Region.Equal(state.Region) || !m.KMSKeyID.Equal(state.KMSKeyID)
}

// Create implements resource.Resource.
func (r *pkiCopyResource) Create(ctx context.Context, req resource.CreateRequest, resp *resource.CreateResponse) {
	var m pkiCopyModel
	resp.Diagnostics.Append(req.Plan.Get(ctx, &m)...)
	if resp.Diagnostics.HasError() {
		return
	}
	ctx, cancel := argument.WithTimeout(ctx, m.Timeouts.Create, argument.PKITimeout, &resp.Diagnostics)
	defer cancel()
	if r.write(ctx, &m, &resp.Diagnostics); !resp.Diagnostics.HasError() {
		resp.Diagnostics.Append(resp.State.Set(ctx, &m)...)
	}
}

// write writes a copy and sets what is computed. It overwrites a copy of the same keys.
func (r *pkiCopyResource) write(ctx context.Context, m *pkiCopyModel, diags *diag.Diagnostics) {
	ref, known := reference.PKIFrom(ctx, m.PKI, diags)
	if diags.HasError() {
		return
	}
	title := "Cannot copy the keys of cluster " + ref.Cluster
	if !known {
		diags.AddAttributeError(path.Root("pki"), title, "The keys are not known yet. Apply k8s_pki first, with -target.")
		return
	}
	store, err := r.Session.Store(ref)
	var client *infraaws.Client
	if err == nil {
		client, err = r.Session.AWS(ctx)
	}
	if err != nil {
		session.AddError(diags, title, err)
		return
	}
	c, err := keycopy.Of(ctx, store, ref)
	var data []byte
	if err == nil {
		data, err = keycopy.Encrypt(c, tf.Strings(m.Recipients.Elements()))
	}
	var sum string
	if err == nil {
		m.Key = types.StringValue(m.Prefix.ValueString() + c.Name())
		sum, err = awsobject.Put(ctx, client, m.object(), data, awsobject.Properties{KMSKeyID: m.KMSKeyID.ValueString()})
	}
	if errors.Is(err, keycopy.ErrOther) {
		err = fmt.Errorf("%w. Nothing was copied. Apply k8s_pki first", err)
	}
	if err != nil {
		session.AddError(diags, title, err)
		return
	}
	m.ID = types.StringValue(m.Bucket.ValueString() + "/" + m.Prefix.ValueString())
	m.SHA256, m.Drift = types.StringValue(sum), tf.NoDrift()
}

func (m pkiCopyModel) object() awsobject.Ref {
	return awsobject.Ref{Bucket: m.Bucket.ValueString(), Key: m.Key.ValueString(), Region: m.Region.ValueString()}
}

// Read implements resource.Resource. It reads no private key. A bucket that does not answer, or may
// not be read, is no reason to stop work on the cluster.
func (r *pkiCopyResource) Read(ctx context.Context, req resource.ReadRequest, resp *resource.ReadResponse) {
	var m pkiCopyModel
	resp.Diagnostics.Append(req.State.Get(ctx, &m)...)
	if resp.Diagnostics.HasError() {
		return
	}
	ctx, cancel := argument.WithTimeout(ctx, m.Timeouts.Read, argument.ReadTimeout, &resp.Diagnostics)
	defer cancel()
	client, ok := r.Session.AWSForRead(ctx, "Cannot refresh the copy "+m.object().String(), &resp.Diagnostics)
	if !ok {
		return
	}
	found := finding.Finding{Subject: "bucket " + m.Bucket.ValueString(), Kind: finding.KeyCopy, Target: m.Key.ValueString()}
	sum, err := awsobject.Sum(ctx, client, m.object(), keycopy.MaxSize)
	switch {
	case errors.Is(err, awsobject.ErrNotFound):
		found.Problem = finding.Missing
	case err != nil:
		resp.Diagnostics.AddWarning("A copy of keys could not be looked at", session.ErrorText(err)+"\n\nWhether it is still there is not known. This plan changes nothing because of that.")
		return
	case sum != m.SHA256.ValueString():
		found.Problem, found.Found, found.Wanted = finding.Content, sum, m.SHA256.ValueString()
	}
	m.Drift = tf.NoDrift()
	if found.Problem != "" {
		m.Drift = argument.DriftValue([]finding.Finding{found})
	}
	resp.Diagnostics.Append(resp.State.Set(ctx, &m)...)
}

// Update implements resource.Resource.
func (r *pkiCopyResource) Update(ctx context.Context, req resource.UpdateRequest, resp *resource.UpdateResponse) {
	var m, state pkiCopyModel
	resp.Diagnostics.Append(req.Plan.Get(ctx, &m)...)
	resp.Diagnostics.Append(req.State.Get(ctx, &state)...)
	if resp.Diagnostics.HasError() {
		return
	}
	ctx, cancel := argument.WithTimeout(ctx, m.Timeouts.Update, argument.PKITimeout, &resp.Diagnostics)
	defer cancel()
	if m.Key.IsUnknown() {
		r.write(ctx, &m, &resp.Diagnostics)
	}
	if !resp.Diagnostics.HasError() {
		resp.Diagnostics.Append(resp.State.Set(ctx, &m)...)
	}
}

// Delete implements resource.Resource. The copies stay in the bucket.
func (r *pkiCopyResource) Delete(context.Context, resource.DeleteRequest, *resource.DeleteResponse) {
}

// ImportState implements resource.ResourceWithImportState. It returns an error that says why no
// import is needed.
func (r *pkiCopyResource) ImportState(_ context.Context, _ resource.ImportStateRequest, resp *resource.ImportStateResponse) {
	resp.Diagnostics.AddError("A copy of keys cannot be imported", "A copy does not show its recipients. Remove the import: an apply writes the copy again, under the same name.")
}
