package keys

import (
	"context"

	"github.com/hashicorp/terraform-plugin-framework-timetypes/timetypes"
	"github.com/hashicorp/terraform-plugin-framework/ephemeral"
	"github.com/hashicorp/terraform-plugin-framework/ephemeral/schema"
	"github.com/hashicorp/terraform-plugin-framework/schema/validator"
	"github.com/hashicorp/terraform-plugin-framework/types"

	"github.com/k8s-from-scratch/terraform-provider-k8s/internal/provider/reference"
	"github.com/k8s-from-scratch/terraform-provider-k8s/internal/provider/session"
	"github.com/k8s-from-scratch/terraform-provider-k8s/internal/provider/tf"
)

type kubeconfigEphemeral struct{ session.Base }

var _ ephemeral.EphemeralResourceWithConfigure = (*kubeconfigEphemeral)(nil)

func NewEphemeralKubeconfig() ephemeral.EphemeralResource { return &kubeconfigEphemeral{} }

// Metadata implements ephemeral.EphemeralResource.
func (e *kubeconfigEphemeral) Metadata(_ context.Context, req ephemeral.MetadataRequest, resp *ephemeral.MetadataResponse) {
	resp.TypeName = req.ProviderTypeName + "_kubeconfig"
}

// Configure implements ephemeral.EphemeralResourceWithConfigure.
func (e *kubeconfigEphemeral) Configure(_ context.Context, req ephemeral.ConfigureRequest, _ *ephemeral.ConfigureResponse) {
	e.Receive(req.ProviderData)
}

// Schema implements ephemeral.EphemeralResource.
func (e *kubeconfigEphemeral) Schema(_ context.Context, _ ephemeral.SchemaRequest, resp *ephemeral.SchemaResponse) {
	resp.Schema = schema.Schema{
		MarkdownDescription: "A short-lived client certificate for the Kubernetes API, issued again for every plan and apply and stored in no state. The attributes are named like " +
			"the arguments of the kubernetes provider.",
		Attributes: map[string]schema.Attribute{
			"control_plane": schema.ObjectAttribute{Required: true, AttributeTypes: reference.OfControlPlane.Type().AttrTypes, MarkdownDescription: reference.ControlPlaneDescription},
			"endpoint":      schema.StringAttribute{Optional: true, MarkdownDescription: kubeconfigEndpoint},
			"proxy_url":     schema.StringAttribute{Optional: true, MarkdownDescription: kubeconfigProxy, Validators: []validator.String{proxyURL()}},
			"user":          schema.StringAttribute{Optional: true, MarkdownDescription: kubeconfigUser},
			"groups":        schema.ListAttribute{Optional: true, ElementType: types.StringType, MarkdownDescription: kubeconfigGroups, Validators: []validator.List{mastersWarning{}}},
			"ttl":           schema.StringAttribute{Optional: true, CustomType: timetypes.GoDurationType{}, MarkdownDescription: kubeconfigTTL, Validators: []validator.String{tf.PositiveDuration()}},
			"exec": schema.SingleNestedAttribute{
				Optional: true, MarkdownDescription: kubeconfigExec, Validators: []validator.Object{certificateOnly()},
				Attributes: map[string]schema.Attribute{
					"command":      schema.StringAttribute{Optional: true, MarkdownDescription: kubeconfigExecCommand},
					"args":         schema.ListAttribute{Required: true, ElementType: types.StringType, MarkdownDescription: kubeconfigExecArgs},
					"env":          schema.MapAttribute{Optional: true, ElementType: types.StringType, MarkdownDescription: kubeconfigExecEnv},
					"install_hint": schema.StringAttribute{Optional: true, MarkdownDescription: kubeconfigExecHint},
				},
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

// Open implements ephemeral.EphemeralResource.
func (e *kubeconfigEphemeral) Open(ctx context.Context, req ephemeral.OpenRequest, resp *ephemeral.OpenResponse) {
	var m kubeconfigModel
	resp.Diagnostics.Append(req.Config.Get(ctx, &m)...)
	if resp.Diagnostics.HasError() {
		return
	}
	m.issue(ctx, e.Session, &resp.Diagnostics)
	if resp.Diagnostics.HasError() {
		return
	}
	resp.Diagnostics.Append(resp.Result.Set(ctx, &m)...)
}
