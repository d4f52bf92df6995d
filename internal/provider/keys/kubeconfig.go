package keys

import (
	"context"
	"fmt"
	"time"

	"github.com/hashicorp/terraform-plugin-framework-timetypes/timetypes"
	"github.com/hashicorp/terraform-plugin-framework-validators/objectvalidator"
	"github.com/hashicorp/terraform-plugin-framework/diag"
	"github.com/hashicorp/terraform-plugin-framework/path"
	"github.com/hashicorp/terraform-plugin-framework/resource"
	"github.com/hashicorp/terraform-plugin-framework/resource/schema"
	"github.com/hashicorp/terraform-plugin-framework/schema/validator"
	"github.com/hashicorp/terraform-plugin-framework/types"

	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/kubeconfig"
	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/pki"
	"github.com/k8s-from-scratch/terraform-provider-k8s/internal/provider/reference"
	"github.com/k8s-from-scratch/terraform-provider-k8s/internal/provider/session"
	"github.com/k8s-from-scratch/terraform-provider-k8s/internal/provider/tf"
)

type kubeconfigResource struct{ session.Base }

var (
	_ resource.ResourceWithConfigure   = (*kubeconfigResource)(nil)
	_ resource.ResourceWithModifyPlan  = (*kubeconfigResource)(nil)
	_ resource.ResourceWithImportState = (*kubeconfigResource)(nil)
)

type managedKubeconfigModel struct {
	kubeconfigModel
	ID           types.String         `tfsdk:"id"`
	EarlyRenewal timetypes.GoDuration `tfsdk:"early_renewal"`
	RenewalDue   types.Bool           `tfsdk:"renewal_due"`
}

func NewKubeconfig() resource.Resource { return &kubeconfigResource{} }

// Metadata implements resource.Resource.
func (r *kubeconfigResource) Metadata(_ context.Context, req resource.MetadataRequest, resp *resource.MetadataResponse) {
	resp.TypeName = req.ProviderTypeName + "_kubeconfig"
}

// Schema implements resource.Resource.
func (r *kubeconfigResource) Schema(_ context.Context, _ resource.SchemaRequest, resp *resource.SchemaResponse) {
	resp.Schema = schema.Schema{
		MarkdownDescription: "A client certificate for the Kubernetes API, **stored in Terraform's state together with its private key**. Prefer the ephemeral resource of the same name, which stores " +
			"nothing. It cannot be imported, since its private key is only in the state.",
		Attributes: map[string]schema.Attribute{
			"id":            schema.StringAttribute{Computed: true, MarkdownDescription: "Identifier: `<cluster>/<user>`."},
			"control_plane": reference.OfControlPlane.Input(reference.ControlPlaneDescription),
			"endpoint":      schema.StringAttribute{Optional: true, MarkdownDescription: kubeconfigEndpoint},
			"proxy_url":     schema.StringAttribute{Optional: true, MarkdownDescription: kubeconfigProxy, Validators: []validator.String{proxyURL()}},
			"user":          schema.StringAttribute{Optional: true, MarkdownDescription: kubeconfigUser},
			"groups":        schema.ListAttribute{Optional: true, ElementType: types.StringType, MarkdownDescription: kubeconfigGroups, Validators: []validator.List{mastersWarning{}}},
			"ttl":           tf.DurationAttribute(kubeconfigTTL),
			"exec": schema.SingleNestedAttribute{
				Optional: true, MarkdownDescription: kubeconfigExec, Validators: []validator.Object{certificateOnly(), objectvalidator.ConflictsWith(path.MatchRoot("early_renewal"))},
				Attributes: map[string]schema.Attribute{
					"command":      schema.StringAttribute{Optional: true, MarkdownDescription: kubeconfigExecCommand},
					"args":         schema.ListAttribute{Required: true, ElementType: types.StringType, MarkdownDescription: kubeconfigExecArgs},
					"env":          schema.MapAttribute{Optional: true, ElementType: types.StringType, MarkdownDescription: kubeconfigExecEnv},
					"install_hint": schema.StringAttribute{Optional: true, MarkdownDescription: kubeconfigExecHint},
				},
			},
			"early_renewal": tf.DurationAttribute("How long before its expiry the certificate is renewed, in place, by the next apply, as a duration such as `2h`. Default: a quarter of `ttl`."),
			"renewal_due": schema.BoolAttribute{
				Computed:            true,
				MarkdownDescription: "Whether the certificate is within `early_renewal` of its expiry. A plan always sets it to `false`, so that a due renewal shows as a change.",
			},
			"host":                   schema.StringAttribute{Computed: true, MarkdownDescription: kubeconfigHost},
			"cluster_ca_certificate": schema.StringAttribute{Computed: true, MarkdownDescription: kubeconfigCA},
			"client_certificate":     schema.StringAttribute{Computed: true, MarkdownDescription: kubeconfigCert},
			"client_key":             schema.StringAttribute{Computed: true, Sensitive: true, MarkdownDescription: kubeconfigKey},
			"kubeconfig_raw":         schema.StringAttribute{Computed: true, Sensitive: true, MarkdownDescription: kubeconfigRaw},
			"expires_at":             schema.StringAttribute{Computed: true, MarkdownDescription: kubeconfigExpires},
		},
	}
}

// ModifyPlan plans a new certificate if anything else changes.
func (r *kubeconfigResource) ModifyPlan(ctx context.Context, req resource.ModifyPlanRequest, resp *resource.ModifyPlanResponse) {
	if req.Plan.Raw.IsNull() {
		return
	}
	var plan managedKubeconfigModel
	resp.Diagnostics.Append(req.Plan.Get(ctx, &plan)...)
	if resp.Diagnostics.HasError() {
		return
	}
	if ttl, early := tf.Duration(plan.TTL, kubeconfig.DefaultTTL), tf.Duration(plan.EarlyRenewal, 0); early >= ttl && !plan.TTL.IsUnknown() {
		resp.Diagnostics.AddAttributeError(path.Root("early_renewal"), "early_renewal is not shorter than ttl",
			fmt.Sprintf("A certificate that is valid for %s and renewed %s before its expiry would be renewed by every plan. Make early_renewal shorter, or ttl longer.", tf.ShortDuration(ttl), tf.ShortDuration(early)))
		return
	}
	plan.ID = plan.id(ctx, &resp.Diagnostics)
	var prior managedKubeconfigModel
	if !req.State.Raw.IsNull() {
		resp.Diagnostics.Append(req.State.Get(ctx, &prior)...)
		plan.RenewalDue = types.BoolValue(false)
	}
	if same := !req.State.Raw.IsNull() && !prior.RenewalDue.ValueBool() && plan.sameRequest(prior); !same {
		plan.Host, plan.ClusterCACertificate, plan.ClientCertificate = types.StringUnknown(), types.StringUnknown(), types.StringUnknown()
		plan.ClientKey, plan.KubeconfigRaw, plan.ExpiresAt = types.StringUnknown(), types.StringUnknown(), types.StringUnknown()
		if !plan.Exec.IsNull() && !plan.Exec.IsUnknown() {
			plan.ClientCertificate, plan.ClientKey, plan.ExpiresAt = types.StringNull(), types.StringNull(), types.StringNull()
		}
		plan.RenewalDue = types.BoolValue(false)
	} else {
		plan.Host, plan.ClusterCACertificate, plan.ClientCertificate = prior.Host, prior.ClusterCACertificate, prior.ClientCertificate
		plan.ClientKey, plan.KubeconfigRaw, plan.ExpiresAt = prior.ClientKey, prior.KubeconfigRaw, prior.ExpiresAt
	}
	resp.Diagnostics.Append(resp.Plan.Set(ctx, &plan)...)
}

// sameRequest reports whether both models request the same certificate. Of the PKI only the
// Kubernetes CA matters: the bundle and the chain must be those in the old kubeconfig, and its first CA must
// have issued the certificate.
func (m managedKubeconfigModel) sameRequest(o managedKubeconfigModel) bool {
	keys, prior := reference.PKIIn(m.ControlPlane).Attributes(), reference.PKIIn(o.ControlPlane).Attributes()
	cluster, _ := keys["cluster"].(types.String)
	before, _ := prior["cluster"].(types.String)
	bundle, _ := keys["kubernetes_ca_pem"].(types.String)
	chain, _ := keys["kubernetes_ca_chain_pem"].(types.String)
	trusted := types.StringValue(bundle.ValueString() + chain.ValueString())
	issued := !m.Exec.IsNull() || pki.IssuedBy([]byte(o.ClientCertificate.ValueString()), []byte(bundle.ValueString()))
	return cluster.Equal(before) && !bundle.IsUnknown() && !chain.IsUnknown() && trusted.Equal(o.ClusterCACertificate) && issued && m.Exec.Equal(o.Exec) &&
		m.endpoint().Equal(o.Host) && m.ProxyURL.Equal(o.ProxyURL) && m.User.Equal(o.User) && m.Groups.Equal(o.Groups) && m.TTL.Equal(o.TTL)
}

// id returns the identifier, unknown if a part of it is.
func (m *managedKubeconfigModel) id(ctx context.Context, diags *diag.Diagnostics) types.String {
	cluster, user := reference.ClusterOf(ctx, reference.PKIIn(m.ControlPlane), diags), m.User.ValueString()
	switch {
	case cluster.IsUnknown() || m.User.IsUnknown():
		return types.StringUnknown()
	case user == "" && !m.Exec.IsNull():
		user = kubeconfig.DefaultPerson
	case user == "":
		user = kubeconfig.DefaultUser
	}
	return types.StringValue(cluster.ValueString() + "/" + user)
}

// setComputed sets the computed attributes that are not part of the credential.
func (m *managedKubeconfigModel) setComputed(ctx context.Context, diags *diag.Diagnostics) {
	m.ID = m.id(ctx, diags)
	m.RenewalDue = types.BoolValue(false)
}

// Create implements resource.Resource.
func (r *kubeconfigResource) Create(ctx context.Context, req resource.CreateRequest, resp *resource.CreateResponse) {
	var m managedKubeconfigModel
	resp.Diagnostics.Append(req.Plan.Get(ctx, &m)...)
	if resp.Diagnostics.HasError() {
		return
	}
	m.issue(ctx, r.Session, &resp.Diagnostics)
	if resp.Diagnostics.HasError() {
		return
	}
	m.setComputed(ctx, &resp.Diagnostics)
	resp.Diagnostics.Append(resp.State.Set(ctx, &m)...)
}

// Read implements resource.Resource.
func (r *kubeconfigResource) Read(ctx context.Context, req resource.ReadRequest, resp *resource.ReadResponse) {
	var m managedKubeconfigModel
	resp.Diagnostics.Append(req.State.Get(ctx, &m)...)
	if resp.Diagnostics.HasError() {
		return
	}
	m.RenewalDue = types.BoolValue(m.due(r.Session.Now()))
	resp.Diagnostics.Append(resp.State.Set(ctx, &m)...)
}

// Update implements resource.Resource.
func (r *kubeconfigResource) Update(ctx context.Context, req resource.UpdateRequest, resp *resource.UpdateResponse) {
	var m managedKubeconfigModel
	resp.Diagnostics.Append(req.Plan.Get(ctx, &m)...)
	if resp.Diagnostics.HasError() {
		return
	}
	if m.KubeconfigRaw.IsUnknown() {
		m.issue(ctx, r.Session, &resp.Diagnostics)
	}
	if resp.Diagnostics.HasError() {
		return
	}
	m.setComputed(ctx, &resp.Diagnostics)
	resp.Diagnostics.Append(resp.State.Set(ctx, &m)...)
}

// Delete implements resource.Resource. A certificate cannot be revoked, so nothing is done.
func (r *kubeconfigResource) Delete(context.Context, resource.DeleteRequest, *resource.DeleteResponse) {
}

// ImportState implements resource.ResourceWithImportState. It returns an error that says why an
// import is impossible.
func (r *kubeconfigResource) ImportState(_ context.Context, _ resource.ImportStateRequest, resp *resource.ImportStateResponse) {
	resp.Diagnostics.AddError("A kubeconfig cannot be imported", "Its private key was only in the lost state. "+
		"Remove the import: an apply issues a new certificate. The old one stays valid until it expires, or until the CA that issued it is dropped.")
}

// due reports whether the certificate must be renewed.
func (m managedKubeconfigModel) due(now time.Time) bool {
	if !m.Exec.IsNull() {
		return false // there is none
	}
	expires, err := time.Parse(time.RFC3339, m.ExpiresAt.ValueString())
	if err != nil {
		return true
	}
	early := tf.Duration(m.EarlyRenewal, tf.Duration(m.TTL, kubeconfig.DefaultTTL)/4)
	return !now.Before(expires.Add(-early))
}
