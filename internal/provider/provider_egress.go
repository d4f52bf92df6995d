package provider

import (
	"context"

	"github.com/hashicorp/terraform-plugin-framework/diag"
	"github.com/hashicorp/terraform-plugin-framework/path"
	"github.com/hashicorp/terraform-plugin-framework/provider/schema"
	"github.com/hashicorp/terraform-plugin-framework/types"

	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/egress"
	"github.com/k8s-from-scratch/terraform-provider-k8s/internal/provider/session"
	"github.com/k8s-from-scratch/terraform-provider-k8s/internal/provider/tf"
)

// proxyModel is machine_proxy.
type proxyModel struct {
	HTTP    types.String `tfsdk:"http"`
	HTTPS   types.String `tfsdk:"https"`
	NoProxy types.List   `tfsdk:"no_proxy"`
}

func proxyAttribute() schema.SingleNestedAttribute {
	return schema.SingleNestedAttribute{
		Optional: true,
		MarkdownDescription: "HTTP proxy through which the machines reach what is outside of their cluster: downloads, packages, images, and S3 for snapshots. " +
			"The provider itself uses `HTTPS_PROXY` of its environment. A change drains and rolls the nodes. Default: none.",
		Attributes: map[string]schema.Attribute{
			"http":  schema.StringAttribute{Optional: true, MarkdownDescription: "URL of the proxy for `http://` URLs, such as `http://proxy.example.com:3128`. Without a user name. Default: none."},
			"https": schema.StringAttribute{Optional: true, MarkdownDescription: "URL of the proxy for `https://` URLs. Default: none."},
			"no_proxy": schema.ListAttribute{
				Optional: true, ElementType: types.StringType,
				MarkdownDescription: "Hosts, domains such as `.example.com`, addresses and networks that the machines reach without the proxy, beside themselves and EC2's metadata; of containerd and the kubelet also beside the cluster's own. apt understands no networks. Default: none.",
			},
		},
	}
}

func authoritiesAttribute() schema.StringAttribute {
	return schema.StringAttribute{
		Optional: true,
		MarkdownDescription: "Certificates of authorities, PEM, that the machines' programs trust beside those of their distribution: of a proxy that opens TLS, a mirror or a registry. " +
			"Not for clients of the cluster. A change drains and rolls the nodes. Default: none.",
	}
}

// configureEgress sets how the machines reach what is outside, and whom they trust there.
func configureEgress(ctx context.Context, d *session.Session, m providerModel, diags *diag.Diagnostics) {
	configureProxy(ctx, d, m, diags)
	switch {
	case m.MachineAuthorities.IsUnknown():
		diags.AddAttributeError(path.Root("machine_authorities"), "Authorities not known yet",
			"A plan compares the machines' file of authorities. Apply first what machine_authorities depends on, with -target, or write its value.")
	case !m.MachineAuthorities.IsNull():
		authorities, err := egress.Authorities(m.MachineAuthorities.ValueString())
		if err != nil {
			diags.AddAttributeError(path.Root("machine_authorities"), "Unusable authorities", "machine_authorities: "+err.Error()+".")
		}
		d.Authorities = authorities
	}
}

func configureProxy(ctx context.Context, d *session.Session, m providerModel, diags *diag.Diagnostics) {
	if !tf.AllKnown(m.MachineProxy) {
		diags.AddAttributeError(path.Root("machine_proxy"), "Proxy not known yet",
			"A plan compares units on the machines, which name the proxy. Apply first what machine_proxy depends on, with -target, or write its value.")
		return
	}
	proxy, ok := tf.Object[proxyModel](ctx, m.MachineProxy, diags)
	if !ok {
		return
	}
	d.Proxy = egress.Proxy{HTTP: proxy.HTTP.ValueString(), HTTPS: proxy.HTTPS.ValueString(), NoProxy: tf.Strings(proxy.NoProxy.Elements())}
	for _, e := range d.Proxy.Check() {
		field := "machine_proxy"
		if e.Field != "" {
			field += "." + e.Field
		}
		at, detail := session.FieldPath(field, e.Err.Error())
		diags.AddAttributeError(at, e.Problem, detail)
	}
}
