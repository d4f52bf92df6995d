package keys

import (
	"context"
	"time"

	"github.com/hashicorp/terraform-plugin-framework-timetypes/timetypes"
	"github.com/hashicorp/terraform-plugin-framework/diag"
	"github.com/hashicorp/terraform-plugin-framework/path"
	"github.com/hashicorp/terraform-plugin-framework/schema/validator"
	"github.com/hashicorp/terraform-plugin-framework/types"

	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/kubeconfig"
	"github.com/k8s-from-scratch/terraform-provider-k8s/internal/provider/reference"
	"github.com/k8s-from-scratch/terraform-provider-k8s/internal/provider/session"
	"github.com/k8s-from-scratch/terraform-provider-k8s/internal/provider/tf"
)

// kubeconfigModel holds the attributes that the ephemeral and the managed kubeconfig share.
type kubeconfigModel struct {
	PKI                  types.Object         `tfsdk:"pki"`
	Endpoint             types.String         `tfsdk:"endpoint"`
	ProxyURL             types.String         `tfsdk:"proxy_url"`
	User                 types.String         `tfsdk:"user"`
	Groups               types.List           `tfsdk:"groups"`
	TTL                  timetypes.GoDuration `tfsdk:"ttl"`
	Host                 types.String         `tfsdk:"host"`
	ClusterCACertificate types.String         `tfsdk:"cluster_ca_certificate"`
	ClientCertificate    types.String         `tfsdk:"client_certificate"`
	ClientKey            types.String         `tfsdk:"client_key"`
	KubeconfigRaw        types.String         `tfsdk:"kubeconfig_raw"`
	ExpiresAt            types.String         `tfsdk:"expires_at"`
}

// Descriptions of the attributes of both kubeconfigs.
const (
	kubeconfigEndpoint = "URL of the API server: the public endpoint, `k8s_lb.<name>.endpoint`, or the private endpoint, `k8s_lb.<name>.private_endpoint`. Without a load balancer, the endpoints " +
		"of `k8s_control_plane.<name>.ref`."
	kubeconfigProxy   = "URL of a proxy on the way to `endpoint`, for the kubeconfig: `http://`, `https://` or `socks5://`. With a private endpoint, `socks5://localhost:1080` is what `ssh -D 1080` of a bastion serves. Default: none."
	kubeconfigUser    = "User in the certificate. Default: `admin`."
	kubeconfigGroups  = "Groups in the certificate. Default: `[\"system:masters\"]`, which may do everything. To grant less, name a group of your own and bind roles to it."
	kubeconfigTTL     = "How long the certificate is valid, as a duration such as `8h`. It cannot be revoked, so keep it short. Default: `8h`."
	kubeconfigHost    = "URL of the API server, for the kubernetes provider's `host`."
	kubeconfigCA      = "Certificates of the Kubernetes CA in PEM, for the kubernetes provider's `cluster_ca_certificate`."
	kubeconfigCert    = "Client certificate in PEM, for the kubernetes provider's `client_certificate`."
	kubeconfigKey     = "Private key in PEM, for the kubernetes provider's `client_key`."
	kubeconfigRaw     = "The same credentials as a kubeconfig file."
	kubeconfigExpires = "Expiry of the certificate, in RFC 3339."
)

// proxyURL accepts the URL of a proxy that kubectl can use.
func proxyURL() validator.String {
	return tf.Check("an http, https or socks5 URL, such as socks5://localhost:1080", kubeconfig.CheckProxyURL)
}

// issue issues the certificate and sets the computed attributes.
func (m *kubeconfigModel) issue(ctx context.Context, d *session.Session, diags *diag.Diagnostics) {
	ref, known := reference.PKIFrom(ctx, m.PKI, diags)
	if diags.HasError() {
		return
	}
	if !known {
		diags.AddAttributeError(path.Root("pki"), "PKI not known yet", "The certificate cannot be issued before the PKI exists. Apply k8s_pki first, with -target.")
		return
	}
	store, err := d.Store(ref)
	if err != nil {
		session.AddError(diags, "Cannot open the key store", err)
		return
	}
	c, err := kubeconfig.Issue(ctx, store, ref, kubeconfig.Request{
		Endpoint: m.Endpoint.ValueString(),
		ProxyURL: m.ProxyURL.ValueString(),
		User:     m.User.ValueString(),
		Groups:   tf.Strings(m.Groups.Elements()),
		TTL:      tf.Duration(m.TTL, 0),
	}, d.Now(), d.Rand)
	if err != nil {
		session.AddError(diags, "Cannot make a client certificate", err)
		return
	}
	text, err := c.YAML()
	if err != nil {
		session.AddError(diags, "Cannot write the kubeconfig", err)
		return
	}
	m.Host = m.Endpoint
	m.ClusterCACertificate = types.StringValue(string(c.CA))
	m.ClientCertificate = types.StringValue(string(c.Pair.CertPEM))
	m.ClientKey = types.StringValue(string(c.Pair.KeyPEM))
	m.KubeconfigRaw = types.StringValue(string(text))
	m.ExpiresAt = types.StringValue(c.Expires.UTC().Format(time.RFC3339))
}
