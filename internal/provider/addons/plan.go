package addons

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/hashicorp/terraform-plugin-framework/path"
	"github.com/hashicorp/terraform-plugin-framework/resource"
	"github.com/hashicorp/terraform-plugin-framework/types"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/kube"
	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/kube/field"
	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/rollout/addon"
	"github.com/k8s-from-scratch/terraform-provider-k8s/internal/provider/reference"
	"github.com/k8s-from-scratch/terraform-provider-k8s/internal/provider/session"
	"github.com/k8s-from-scratch/terraform-provider-k8s/internal/provider/tf"
)

// ModifyPlan parses the manifests, and plans which objects change and which are replaced. It compares
// manifests with each other, and knows of the cluster what the refresh has recorded.
func (r *addonResource) ModifyPlan(ctx context.Context, req resource.ModifyPlanRequest, resp *resource.ModifyPlanResponse) {
	if req.Plan.Raw.IsNull() {
		return
	}
	var plan addonModel
	resp.Diagnostics.Append(req.Plan.Get(ctx, &plan)...)
	reference.CheckRotationFinished(ctx, req, &resp.Diagnostics)
	if resp.Diagnostics.HasError() {
		return
	}
	plan.checkPower(ctx, req, &resp.Diagnostics)
	// Broken manifests are errors also while other arguments are not known yet.
	a := addon.Addon{Name: plan.Name.ValueString()}
	known := req.Config.Raw.IsFullyKnown()
	listed := known || !plan.builtIn() && tf.AllKnown(plan.Manifests, plan.SensitiveManifests)
	if plan.builtIn() && !plan.Name.IsUnknown() {
		session.AddFieldErrors(ctx, req.Plan, plan.release().Check(), &resp.Diagnostics)
		if resp.Diagnostics.HasError() {
			return
		}
	}
	if known || !plan.builtIn() {
		a = plan.addon(ctx, &resp.Diagnostics)
	}
	plan.Objects = types.MapUnknown(types.StringType)
	if known {
		plan.complete(ctx, a, &resp.Diagnostics)
	}
	session.AddFieldErrors(ctx, req.Plan, plan.checkIgnored(a.Objects, listed), &resp.Diagnostics)
	if resp.Diagnostics.HasError() {
		return
	}
	plan.Replaces, plan.FinishedJobs = tf.StringMapValue(nil), types.SetUnknown(types.StringType)
	switch {
	case !listed && !req.State.Raw.IsNull():
		plan.Replaces = types.MapUnknown(types.StringType)
	case !listed:
	case req.State.Raw.IsNull():
		plan.FinishedJobs = plannedJobs(nil, a.Objects)
	default:
		r.planChange(ctx, req, resp, &plan, a)
	}
	if resp.Diagnostics.HasError() {
		return
	}
	resp.Diagnostics.Append(resp.Plan.Set(ctx, &plan)...)
}

// planChange plans what an apply does to objects that exist.
func (r *addonResource) planChange(ctx context.Context, req resource.ModifyPlanRequest, resp *resource.ModifyPlanResponse, plan *addonModel, a addon.Addon) {
	state, before, rec := r.open(ctx, req.State, req.Private, &resp.Diagnostics)
	if resp.Diagnostics.HasError() {
		return
	}
	plan.Replaces, plan.FinishedJobs = state.Replaces, state.FinishedJobs
	unchanged := resp.Plan
	resp.Diagnostics.Append(unchanged.Set(ctx, plan)...)
	if resp.Diagnostics.HasError() || unchanged.Raw.Equal(req.State.Raw) {
		return
	}
	replaces, errs := replacements(before.Objects, a.Objects, rec.Immutable)
	plan.Replaces = tf.StringMapValue(replaces)
	anew := plan.replaced(a.Objects)
	staying := slices.DeleteFunc(rec.runs(a.Objects), func(run kube.JobRun) bool { return slices.ContainsFunc(anew, run.Ref.Same) })
	plan.FinishedJobs = plannedJobs(staying, a.Objects)
	for ref, err := range errs {
		resp.Diagnostics.AddAttributeError(plan.manifestOf(ref), "The object would be lost", err.Error())
	}
	for _, o := range before.Objects {
		ref := kube.RefOf(o)
		if loses := field.Loses(o, nil); loses != "" && !slices.ContainsFunc(kube.RefsOf(a.Objects), ref.Same) {
			resp.Diagnostics.AddAttributeWarning(path.Root("manifests"), "Data will be deleted",
				fmt.Sprintf("%s is no longer listed, so the apply deletes it, and with it %s.", ref, loses))
		}
	}
}

// replacements returns the objects that must be deleted and created again, and why, and errors for
// objects whose deletion would lose data. immutable are the objects that a refresh has found to be
// immutable.
func replacements(before, after []*unstructured.Unstructured, immutable map[string]string) (map[string]string, map[kube.ObjectRef]error) {
	replaces, errs := map[string]string{}, map[kube.ObjectRef]error{}
	for _, o := range after {
		ref := kube.RefOf(o)
		fields := immutable[ref.String()]
		if i := slices.IndexFunc(before, func(b *unstructured.Unstructured) bool { return kube.RefOf(b).Same(ref) }); i >= 0 && fields == "" {
			fields = strings.Join(field.Changed(before[i], o), ", ")
		}
		if fields == "" {
			continue
		}
		if loses := field.Loses(o, nil); loses != "" {
			errs[ref] = fmt.Errorf("%s of %s cannot be changed. The object would have to be deleted, and with it %s: no apply does that. "+
				"Change it back; or save what you need, delete the object with kubectl, and take it out of the manifests for one apply", fields, ref, loses)
			continue
		}
		replaces[ref.String()] = fields + " cannot be changed: the object is deleted and created again"
	}
	return replaces, errs
}

// manifestOf returns the attribute with the manifest of an object.
func (m *addonModel) manifestOf(ref kube.ObjectRef) path.Path {
	for name, list := range map[string]types.List{"manifests": m.Manifests, "sensitive_manifests": m.SensitiveManifests} {
		for i, text := range textsAt(list) {
			found, _ := kube.ReadManifests(kube.Manifests{Texts: []string{text}})
			if slices.ContainsFunc(kube.RefsOf(found[0]), ref.Same) {
				return path.Root(name).AtListIndex(i)
			}
		}
	}
	return path.Root("name")
}
