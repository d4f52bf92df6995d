package keys

import (
	"cmp"
	"context"
	"slices"
	"time"

	"github.com/hashicorp/terraform-plugin-framework-timetypes/timetypes"
	"github.com/hashicorp/terraform-plugin-framework-validators/objectvalidator"
	"github.com/hashicorp/terraform-plugin-framework/diag"
	"github.com/hashicorp/terraform-plugin-framework/path"
	"github.com/hashicorp/terraform-plugin-framework/schema/validator"
	"github.com/hashicorp/terraform-plugin-framework/types"
	"github.com/hashicorp/terraform-plugin-framework/types/basetypes"

	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/access"
	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/kubeconfig"
	"github.com/k8s-from-scratch/terraform-provider-k8s/internal/provider/reference"
	"github.com/k8s-from-scratch/terraform-provider-k8s/internal/provider/session"
	"github.com/k8s-from-scratch/terraform-provider-k8s/internal/provider/tf"
)

// kubeconfigModel holds the attributes that the ephemeral and the managed kubeconfig share.
type kubeconfigModel struct {
	ControlPlane         types.Object         `tfsdk:"control_plane"`
	Endpoint             types.String         `tfsdk:"endpoint"`
	ProxyURL             types.String         `tfsdk:"proxy_url"`
	User                 types.String         `tfsdk:"user"`
	Groups               types.List           `tfsdk:"groups"`
	TTL                  timetypes.GoDuration `tfsdk:"ttl"`
	Exec                 types.Object         `tfsdk:"exec"`
	Host                 types.String         `tfsdk:"host"`
	ClusterCACertificate types.String         `tfsdk:"cluster_ca_certificate"`
	ClientCertificate    types.String         `tfsdk:"client_certificate"`
	ClientKey            types.String         `tfsdk:"client_key"`
	KubeconfigRaw        types.String         `tfsdk:"kubeconfig_raw"`
	ExpiresAt            types.String         `tfsdk:"expires_at"`
}

// Descriptions of the attributes of both kubeconfigs.
const (
	kubeconfigEndpoint = "URL of the API server, such as the private endpoint: `k8s_control_plane.<name>.ref.private_endpoint`. Default: the public endpoint."
	kubeconfigProxy    = "URL of a proxy on the way to `endpoint`, for the kubeconfig: `http://`, `https://` or `socks5://`. With a private endpoint, `socks5://localhost:1080` is what `ssh -D 1080` of a bastion serves. Default: none."
	kubeconfigUser     = "User in the certificate. With `exec` it is only a name in the kubeconfig. Default: `admin`, with `exec` `person`."
	kubeconfigGroups   = "Groups in the certificate. Default: `[\"k8s-from-scratch:administrators\"]`, which the control plane binds to cluster-admin. To grant less, name a group of your own in `access` of the control plane. `system:masters` is for a cluster whose bindings are broken: nothing takes it back."
	kubeconfigTTL      = "How long the certificate is valid, as a duration such as `8h`. It cannot be revoked, so keep it short. Default: `8h`."
	kubeconfigHost     = "URL of the API server, for the kubernetes provider's `host`."
	kubeconfigCA       = "Certificates of the Kubernetes CA in PEM, for the kubernetes provider's `cluster_ca_certificate`."
	kubeconfigCert     = "Client certificate in PEM, for the kubernetes provider's `client_certificate`. Null with `exec`."
	kubeconfigKey      = "Private key in PEM, for the kubernetes provider's `client_key`. Null with `exec`."
	kubeconfigRaw      = "The same credentials as a kubeconfig file."
	kubeconfigExpires  = "Expiry of the certificate, in RFC 3339. Null with `exec`."
)

// Descriptions of exec.
const (
	kubeconfigExec        = "Program that signs people in, in place of a certificate: a credential plugin of kubectl. The API servers must accept its tokens (`authentication` of `k8s_control_plane`). The kubeconfig then holds no secret, can be given to everybody, and no key is used for it."
	kubeconfigExecCommand = "Path or name of the program. Default: `k8s-kubeconfig`; `args` must then begin with `sign-in`."
	kubeconfigExecArgs    = "Arguments of the program, such as `[\"sign-in\", \"-issuer\", \"https://login.example.com\", \"-client-id\", \"kubernetes\"]`."
	kubeconfigExecEnv     = "Environment variables for the program, beside those of the person. Default: none."
	kubeconfigExecHint    = "What kubectl says if the program is not there: how to install it. Default: none."
)

type execModel struct {
	Command     types.String `tfsdk:"command"`
	Args        types.List   `tfsdk:"args"`
	Env         types.Map    `tfsdk:"env"`
	InstallHint types.String `tfsdk:"install_hint"`
}

// exec returns the program that signs people in; nil if a certificate is wanted.
func (m *kubeconfigModel) exec(ctx context.Context, diags *diag.Diagnostics) *kubeconfig.Exec {
	if m.Exec.IsNull() {
		return nil
	}
	var e execModel
	diags.Append(m.Exec.As(ctx, &e, basetypes.ObjectAsOptions{})...)
	return &kubeconfig.Exec{Command: cmp.Or(e.Command.ValueString(), "k8s-kubeconfig"), Args: tf.Strings(e.Args.Elements()),
		Env: tf.StringMap(e.Env), InstallHint: e.InstallHint.ValueString()}
}

// certificateOnly refuses arguments of a certificate beside exec.
func certificateOnly() validator.Object {
	return objectvalidator.ConflictsWith(path.MatchRoot("groups"), path.MatchRoot("ttl"))
}

// mastersWarning warns of a group whose certificates nothing takes back.
type mastersWarning struct{}

// Description implements validator.List.
func (mastersWarning) Description(context.Context) string { return "warns of " + access.Masters }

// MarkdownDescription implements validator.List.
func (v mastersWarning) MarkdownDescription(ctx context.Context) string { return v.Description(ctx) }

// ValidateList implements validator.List.
func (mastersWarning) ValidateList(_ context.Context, req validator.ListRequest, resp *validator.ListResponse) {
	if slices.Contains(tf.Strings(req.ConfigValue.Elements()), access.Masters) {
		resp.Diagnostics.AddAttributeWarning(req.Path, "Access that cannot be taken back",
			"API servers let a certificate of group "+access.Masters+" do everything until it expires, whatever RBAC says. It is meant for a cluster whose bindings are broken. Keep ttl short, and remove it then. "+
				"An administrator of a working cluster needs no groups here: the default is "+access.Administrators+".")
	}
}

// proxyURL accepts the URL of a proxy that kubectl can use.
func proxyURL() validator.String {
	return tf.Check("an http, https or socks5 URL, such as socks5://localhost:1080", kubeconfig.CheckProxyURL)
}

// endpoint returns the URL of the API server: the argument, or the public endpoint.
func (m *kubeconfigModel) endpoint() types.String {
	if !m.Endpoint.IsNull() {
		return m.Endpoint
	}
	if m.ControlPlane.IsUnknown() {
		return types.StringUnknown()
	}
	public, _ := m.ControlPlane.Attributes()["endpoint"].(types.String)
	return public
}

// issue issues the certificate and sets the computed attributes.
func (m *kubeconfigModel) issue(ctx context.Context, d *session.Session, diags *diag.Diagnostics) {
	ref, known := reference.PKIFrom(ctx, reference.PKIIn(m.ControlPlane), diags)
	if diags.HasError() {
		return
	}
	if !known {
		diags.AddAttributeError(path.Root("control_plane"), "PKI not known yet", "The certificate cannot be issued before the PKI exists. Apply k8s_pki first, with -target.")
		return
	}
	request := kubeconfig.Request{
		Endpoint: m.endpoint().ValueString(),
		ProxyURL: m.ProxyURL.ValueString(),
		User:     m.User.ValueString(),
		Groups:   tf.Strings(m.Groups.Elements()),
		TTL:      tf.Duration(m.TTL, 0),
	}
	var c kubeconfig.Credential
	if exec := m.exec(ctx, diags); exec != nil {
		c = kubeconfig.SignIn(ref, request, *exec)
	} else {
		store, err := d.Store(ref)
		if err != nil {
			session.AddError(diags, "Cannot open the key store", err)
			return
		}
		if c, err = kubeconfig.Issue(ctx, store, ref, request, d.Now(), d.Rand); err != nil {
			session.AddError(diags, "Cannot make a client certificate", err)
			return
		}
	}
	text, err := c.YAML()
	if err != nil {
		session.AddError(diags, "Cannot write the kubeconfig", err)
		return
	}
	m.Host = m.endpoint()
	m.ClusterCACertificate = types.StringValue(string(c.CA))
	m.KubeconfigRaw = types.StringValue(string(text))
	m.ClientCertificate, m.ClientKey, m.ExpiresAt = types.StringNull(), types.StringNull(), types.StringNull()
	if c.Exec == nil {
		m.ClientCertificate = types.StringValue(string(c.Pair.CertPEM))
		m.ClientKey = types.StringValue(string(c.Pair.KeyPEM))
		m.ExpiresAt = types.StringValue(c.Expires.UTC().Format(time.RFC3339))
	}
}
