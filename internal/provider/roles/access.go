package roles

import (
	"context"

	"github.com/hashicorp/terraform-plugin-framework/attr"
	"github.com/hashicorp/terraform-plugin-framework/diag"
	"github.com/hashicorp/terraform-plugin-framework/path"
	"github.com/hashicorp/terraform-plugin-framework/resource/schema"
	"github.com/hashicorp/terraform-plugin-framework/types"

	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/access"
	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/foreign"
	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/rollout/controlplane"
	"github.com/k8s-from-scratch/terraform-provider-k8s/internal/provider/session"
	"github.com/k8s-from-scratch/terraform-provider-k8s/internal/provider/tf"
)

type accessModel struct {
	Group       types.String `tfsdk:"group"`
	User        types.String `tfsdk:"user"`
	ClusterRole types.String `tfsdk:"cluster_role"`
	Role        types.String `tfsdk:"role"`
	Namespace   types.String `tfsdk:"namespace"`
}

var accessEntry = tf.NewReference[accessModel](map[string]schema.Attribute{
	"group": schema.StringAttribute{Optional: true, MarkdownDescription: "Group: of an issuer, with the prefix of `authentication`, or of `groups` of `k8s_kubeconfig`. Either this or `user`."},
	"user":  schema.StringAttribute{Optional: true, MarkdownDescription: "User: of an issuer, with the prefix of `authentication`, or of `user` of `k8s_kubeconfig`. Either this or `group`."},
	"cluster_role": schema.StringAttribute{Optional: true, MarkdownDescription: "ClusterRole, such as `view`, `edit` or `admin`: in the whole cluster, or in `namespace` only. A change replaces " +
		"the binding. Either this or `role`."},
	"role":      schema.StringAttribute{Optional: true, MarkdownDescription: "Role of `namespace`. A change replaces the binding. Either this or `cluster_role`."},
	"namespace": schema.StringAttribute{Optional: true, MarkdownDescription: "Namespace of the binding. While it does not exist, plans warn, and the first apply after it exists makes the binding. Default: the whole cluster."},
})

func accessSetting() setting[controlPlaneModel, controlplane.ControlPlane] {
	a := accessEntry.Inputs("Who may do what: groups and users, of issuers or of certificates, and their roles. A change is made through the API and restarts nothing; a removed entry ends access at once. " +
		"Default: none; only administrators' certificates may do anything.")
	a.Required, a.Optional = false, true
	return newSetting(a, conversion[types.List, []access.Entry]{accessFrom, accessValue},
		func(m *controlPlaneModel, s *controlplane.ControlPlane) (*types.List, *[]access.Entry) {
			return &m.Access, &s.Spec.Access
		})
}

// accessFrom returns the entries, or nil unless all of them are known.
func accessFrom(ctx context.Context, list types.List) (out []access.Entry) {
	if !tf.AllKnown(list) {
		return nil
	}
	var diags diag.Diagnostics // always empty: the model fits the reference
	models, _ := tf.Objects[accessModel](ctx, list, &diags)
	for _, m := range models {
		out = append(out, access.Entry{Group: m.Group.ValueString(), User: m.User.ValueString(),
			ClusterRole: m.ClusterRole.ValueString(), Role: m.Role.ValueString(), Namespace: m.Namespace.ValueString()})
	}
	return out
}

// accessValue is the inverse of accessFrom.
func accessValue(ctx context.Context, entries []access.Entry) types.List {
	if len(entries) == 0 {
		return types.ListNull(accessEntry.Type())
	}
	var out []attr.Value
	for _, e := range entries {
		out = append(out, accessEntry.Value(ctx, accessModel{Group: tf.OptionalString(e.Group), User: tf.OptionalString(e.User),
			ClusterRole: tf.OptionalString(e.ClusterRole), Role: tf.OptionalString(e.Role), Namespace: tf.OptionalString(e.Namespace)}))
	}
	return types.ListValueMust(accessEntry.Type(), out)
}

// warnOfSystemNames warns of entries for groups and users of Kubernetes itself.
func warnOfSystemNames(entries []access.Entry, diags *diag.Diagnostics) {
	for i, e := range entries {
		if w := e.Warning(); w != "" {
			diags.AddAttributeWarning(path.Root("access").AtListIndex(i), "Access for a name of Kubernetes", e.String()+": "+w)
		}
	}
}

// readAccess reads the entries of an imported control plane from its bindings.
func readAccess(ctx context.Context, d *session.Session, m *controlPlaneModel, found *controlplane.ControlPlane, diags *diag.Diagnostics) {
	if !m.Access.IsNull() {
		return
	}
	entries, err := found.Entries(ctx, d.Fleet(ctx), m.balancer(ctx, diags).Endpoint.ValueString())
	if err != nil {
		diags.AddWarning("The import could not read all arguments of this control plane", foreign.Text(err.Error())+
			"\n\naccess is read from the API. If the import id does not contain it, the next apply takes it from the configuration; it restarts nothing.")
	}
	found.Spec.Access = entries
}
