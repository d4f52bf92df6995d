package keys

import (
	"context"
	"fmt"

	"github.com/hashicorp/terraform-plugin-framework/path"
	"github.com/hashicorp/terraform-plugin-framework/resource"

	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/pki"
	"github.com/k8s-from-scratch/terraform-provider-k8s/internal/provider/argument"
	"github.com/k8s-from-scratch/terraform-provider-k8s/internal/provider/tf"
)

// livesKey is the private-state entry that says, within one plan, that the configuration does not
// end the object. If Terraform then plans a new object with this entry, the user has requested a
// replacement: by -replace, or by replace_triggered_by.
const livesKey = "lives"

// warnOfLostKeys says in the plan what is lost with the keys of a cluster, and refuses to plan the
// end of protected keys.
func (r *pkiResource) warnOfLostKeys(ctx context.Context, req resource.ModifyPlanRequest, resp *resource.ModifyPlanResponse) {
	what := argument.ObjectName(ctx, "pki", "cluster", req.State, resp.Plan)
	end := argument.PlannedEnd(ctx, what, req, resp)
	switch {
	case req.State.Raw.IsNull() && req.Private != nil && tf.ReadPrivate[bool](ctx, req.Private, livesKey, &resp.Diagnostics):
		resp.Diagnostics.AddAttributeError(path.Root("cluster"), "This plan replaces the keys of a cluster",
			"-replace or replace_triggered_by asks for it. All keys would be deleted before any part of the cluster has new keys. No certificate of the cluster could be renewed then, "+
				"and nobody could read the secrets in its etcd or in snapshots of it.\n\nTo get other keys for a running cluster, rotate them with generations: the guide \"Rotate keys\" "+
				"describes the steps. To start over with an empty cluster, destroy its resources first.")
	case !req.State.Raw.IsNull() && !req.Plan.Raw.IsNull() && resp.Private != nil:
		tf.WritePrivate(ctx, resp.Private, livesKey, end == argument.Stays, &resp.Diagnostics)
	}
	if end == argument.Stays {
		return
	}
	var state pkiModel
	resp.Diagnostics.Append(req.State.Get(ctx, &state)...)
	if resp.Diagnostics.HasError() {
		return
	}
	private := 0
	for _, name := range pki.Names(state.ref(ctx).Generations) {
		if pki.Secret(name) {
			private++
		}
	}
	where := "in the Terraform state"
	if state.KeyStore.ValueString() == pki.StoreSSM {
		where = "in SSM below " + state.Prefix.ValueString()
	}
	resp.Diagnostics.AddWarning(fmt.Sprintf("This plan ends the keys of cluster %s", state.Cluster.ValueString()),
		fmt.Sprintf("They are %s %s. Without them no certificate of the cluster can be renewed, and nobody can read the secrets in its etcd or in snapshots of it.\n\n"+
			"To get other keys for a running cluster, rotate them with generations. To have such plans refused, set deletion_protection = true.", argument.Counted(int64(private), "private key"), where))
}
