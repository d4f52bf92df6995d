package roles

import (
	"context"
	"fmt"

	"github.com/hashicorp/terraform-plugin-framework/attr"
	"github.com/hashicorp/terraform-plugin-framework/diag"
	"github.com/hashicorp/terraform-plugin-framework/path"
	"github.com/hashicorp/terraform-plugin-framework/resource"

	"github.com/k8s-from-scratch/terraform-provider-k8s/internal/provider/reference"
)

// Arguments that cannot change while etcd keeps its data, since objects in the data contain them.

// guardControlPlane refuses ranges that do not fit the data of etcd.
func guardControlPlane(ctx context.Context, plan, prior *controlPlaneModel, known knowledge, diags *diag.Diagnostics) {
	if prior == nil || known.fresh(prior.ID.ValueString()) {
		return
	}
	for _, fixed := range []struct {
		name          string
		before, after attr.Value
		holds         string
	}{
		{"service_cidr", prior.ServiceCIDR, plan.ServiceCIDR, "every Service keeps its address, and so does the Service kubernetes, for whose old address no certificate would be valid"},
		{"pod_cidr", prior.PodCIDR, plan.PodCIDR, "the Node objects keep the networks of their pods"},
		{"domain", prior.Domain, plan.Domain, "the tokens of service accounts name it as their issuer, and what is stored may name Services by it"},
	} {
		if fixed.before.IsNull() || fixed.after.Equal(fixed.before) { // null after an import that did not find it
			continue
		}
		change := "this plan changes it"
		if fixed.after.IsUnknown() {
			change = "its value in this plan is known only after the apply"
		}
		diags.AddAttributeError(path.Root(fixed.name), "A cluster keeps its "+fixed.name,
			fmt.Sprintf("It is %s, and %s. It cannot change while etcd keeps its data: in the data %s. Nothing was changed.\n\nRestore the present value. To get another value, make a second "+
				"cluster under another name, apply the manifests there, move what your programs store, and destroy this one. A snapshot of etcd does not help, since it has the old "+
				"values. To start over with an empty cluster, destroy k8s_etcd_cluster and everything that depends on it, then apply.", plainValue(fixed.before), change, fixed.holds))
	}
	if plan.Domain.Equal(prior.Domain) { // or that is an error already
		guardIssuer(ctx, plan, prior, diags)
	}
}

// plainValue returns a value of text as a person writes it.
func plainValue(v attr.Value) string {
	if s, ok := v.(interface{ ValueString() string }); ok {
		return s.ValueString()
	}
	return v.String()
}

// checkClusterStays refuses a plan that gives a role to another cluster: its machines and data stay those of the
// cluster that it has.
func checkClusterStays(ctx context.Context, title string, req resource.ModifyPlanRequest, diags *diag.Diagnostics) {
	was, planned, at := reference.PlannedPKI(ctx, req, diags)
	if diags.HasError() {
		return
	}
	before, after := reference.ClusterOf(ctx, was, diags), reference.ClusterOf(ctx, planned, diags)
	if before.IsNull() || after.IsUnknown() || after.Equal(before) {
		return
	}
	diags.AddAttributeError(at, "A cluster keeps its name",
		fmt.Sprintf("This %s belongs to cluster %s, and the keys belong to cluster %s: nothing on the machines and in etcd would trust these keys, and tags, key stores and claims have the old "+
			"name. Nothing was changed.\n\nUse the keys of cluster %s again. To get another name, make a second cluster, move to it, and destroy this one.", title, before.ValueString(), after.ValueString(), before.ValueString()))
}
