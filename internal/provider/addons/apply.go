package addons

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/url"
	"strings"

	"github.com/hashicorp/terraform-plugin-framework/diag"
	"github.com/hashicorp/terraform-plugin-framework/resource"
	"github.com/hashicorp/terraform-plugin-framework/tfsdk"
	"github.com/hashicorp/terraform-plugin-framework/types"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/builtin"
	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/foreign"
	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/kube"
	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/rollout/addon"
	"github.com/k8s-from-scratch/terraform-provider-k8s/internal/provider/argument"
	"github.com/k8s-from-scratch/terraform-provider-k8s/internal/provider/reference"
	"github.com/k8s-from-scratch/terraform-provider-k8s/internal/provider/session"
	"github.com/k8s-from-scratch/terraform-provider-k8s/internal/provider/tf"
)

// Create implements resource.Resource. Applying is idempotent: after a failure the next create
// continues where this one stopped.
func (r *addonResource) Create(ctx context.Context, req resource.CreateRequest, resp *resource.CreateResponse) {
	var plan addonModel
	resp.Diagnostics.Append(req.Plan.Get(ctx, &plan)...)
	if resp.Diagnostics.HasError() {
		return
	}
	ctx, cancel := argument.WithTimeout(ctx, plan.Timeouts.Create, addonDeadlines.Create, &resp.Diagnostics)
	defer cancel()
	rec := r.apply(ctx, &plan, addonRecord{}, &resp.Diagnostics)
	if resp.Diagnostics.HasError() {
		return
	}
	plan.Claim = types.StringValue(rec.Claim)
	tf.WritePrivate(ctx, resp.Private, inventoryKey, rec, &resp.Diagnostics)
	resp.Diagnostics.Append(resp.State.Set(ctx, &plan)...)
}

// Update implements resource.Resource.
func (r *addonResource) Update(ctx context.Context, req resource.UpdateRequest, resp *resource.UpdateResponse) {
	var plan addonModel
	resp.Diagnostics.Append(req.Plan.Get(ctx, &plan)...)
	_, _, rec := r.open(ctx, req.State, req.Private, &resp.Diagnostics)
	if resp.Diagnostics.HasError() {
		return
	}
	ctx, cancel := argument.WithTimeout(ctx, plan.Timeouts.Update, addonDeadlines.Update, &resp.Diagnostics)
	defer cancel()
	rec = r.apply(ctx, &plan, rec, &resp.Diagnostics)
	tf.WritePrivate(ctx, resp.Private, inventoryKey, rec, &resp.Diagnostics)
	if resp.Diagnostics.HasError() {
		return
	}
	resp.Diagnostics.Append(resp.State.Set(ctx, &plan)...)
}

func (r *addonResource) apply(ctx context.Context, m *addonModel, rec addonRecord, diags *diag.Diagnostics) addonRecord {
	a := m.addon(ctx, diags)
	if diags.HasError() {
		return rec
	}
	var err error
	if rec.Claim, err = r.Session.ClaimID(rec.Claim, m.Claim.ValueString()); err == nil && !m.off(ctx, diags) {
		a.Claim, a.Runs, a.Replace = rec.Claim, rec.runs(a.Objects), m.replaced(a.Objects)
		var applied addon.Applied
		applied, err = a.Apply(ctx, r.Session.Fleet(ctx), rec.Objects)
		rec.Objects = applied.Inventory
		before := rec.Jobs
		rec.keep(applied.Runs, a.Objects)
		if err != nil {
			rec.retain(before, applied.Runs)
		}
	}
	if err != nil {
		session.AddError(diags, "Cannot apply the addon "+a.Name, err)
		return rec
	}
	m.Drift, rec.Immutable = tf.NoDrift(), nil
	m.FinishedJobs = finished(rec.runs(a.Objects))
	m.complete(ctx, a, diags)
	return rec
}

// replaced returns the objects that the plan replaces.
func (m *addonModel) replaced(objects []*unstructured.Unstructured) (out []kube.ObjectRef) {
	for _, ref := range kube.RefsOf(objects) {
		if _, ok := m.Replaces.Elements()[ref.String()]; ok {
			out = append(out, ref)
		}
	}
	return out
}

// open reads the state, the objects that it describes and the record.
func (r *addonResource) open(ctx context.Context, from tfsdk.State, private tf.PrivateState, diags *diag.Diagnostics) (addonModel, addon.Addon, addonRecord) {
	var state addonModel
	diags.Append(from.Get(ctx, &state)...)
	rec := tf.ReadPrivate[addonRecord](ctx, private, inventoryKey, diags)
	if diags.HasError() {
		return state, addon.Addon{}, rec
	}
	a := state.addon(ctx, diags)
	a.Claim, a.Runs = cmp.Or(rec.Claim, state.Claim.ValueString()), rec.runs(a.Objects)
	if rec.Objects == nil { // the private state was lost, see ReadOwnership
		rec.Objects = kube.RefsOf(a.Objects)
	}
	return state, a, rec
}

// Read implements resource.Resource.
func (r *addonResource) Read(ctx context.Context, req resource.ReadRequest, resp *resource.ReadResponse) {
	req.State.Raw = r.Session.AsPaused(req.State.Raw)
	state, a, rec := r.open(ctx, req.State, req.Private, &resp.Diagnostics)
	if resp.Diagnostics.HasError() {
		return
	}
	ctx, cancel := argument.WithTimeout(ctx, state.Timeouts.Read, addonDeadlines.Read, &resp.Diagnostics)
	defer cancel()
	if state.off(ctx, &resp.Diagnostics) {
		resp.State.Raw = req.State.Raw
		return
	}
	seen, err := a.Observe(ctx, r.Session.Fleet(ctx), rec.Objects)
	if err != nil {
		session.AddError(&resp.Diagnostics, "Cannot compare the addon "+a.Name+" with the cluster", err)
		return
	}
	for _, f := range seen.Unjudged {
		resp.Diagnostics.AddWarning("The addon "+a.Name+" could not be compared completely", foreign.Text(f.String()))
	}
	before := rec.Jobs
	rec.keep(seen.Runs, a.Objects)
	rec.retain(before, nil)
	rec.note(seen.Drift)
	tf.WritePrivate(ctx, resp.Private, inventoryKey, rec, &resp.Diagnostics)
	state.Claim, state.Drift = tf.OptionalString(a.Claim), argument.DriftValue(seen.Drift)
	state.Replaces = tf.StringMapValue(nil)
	state.FinishedJobs = finished(seen.Runs)
	resp.Diagnostics.Append(resp.State.Set(ctx, &state)...)
}

// Delete implements resource.Resource. If the API server cannot be reached any more, the objects
// are left with a warning.
func (r *addonResource) Delete(ctx context.Context, req resource.DeleteRequest, resp *resource.DeleteResponse) {
	state, a, rec := r.open(ctx, req.State, req.Private, &resp.Diagnostics)
	if resp.Diagnostics.HasError() {
		return
	}
	ctx, cancel := argument.WithTimeout(ctx, state.Timeouts.Delete, addonDeadlines.Delete, &resp.Diagnostics)
	defer cancel()
	if state.off(ctx, &resp.Diagnostics) {
		resp.Diagnostics.AddWarning("The objects of addon "+a.Name+" were not deleted",
			"The machines of the API servers are stopped. If the cluster is destroyed as well, the objects are gone with it. Otherwise delete them with kubectl, when it runs again.")
		return
	}
	kept, err := a.Remove(ctx, r.Session.Fleet(ctx), rec.Objects)
	if len(kept) > 0 {
		resp.Diagnostics.AddWarning(fmt.Sprintf("%d objects of addon %s were kept", len(kept), a.Name),
			fmt.Sprintf("Another k8s_addon has applied them since. Either it replaces this addon with create_before_destroy, or their manifests were moved to it. The first of these objects is %s.", kept[0]))
	}
	switch {
	case err == nil:
	case unreachable(ctx, err):
		resp.Diagnostics.AddWarning("The objects of addon "+a.Name+" were not deleted",
			"The API server cannot be reached: "+foreign.Text(err.Error())+"\n\nIf the cluster is destroyed as well, they are gone with it. Otherwise delete them with kubectl.")
	default:
		session.AddError(&resp.Diagnostics, "Cannot delete the addon "+a.Name, err)
	}
}

// unreachable reports whether an error is that of a request which got no answer. When the deadline is
// over, that says nothing of the API server: the deadline has cut the request, or kept it from being
// sent, as when the objects wait for their finalizers.
func unreachable(ctx context.Context, err error) bool {
	var failed *url.Error
	return ctx.Err() == nil && errors.As(err, &failed)
}

// lookUp returns the arguments of a built-in addon by its id, "<cluster>/<name>".
func (r *addonResource) lookUp(ctx context.Context, d *session.Session, id string) (map[string]any, error) {
	cluster, name, _ := strings.Cut(id, "/")
	if !builtin.Known(name) {
		return nil, fmt.Errorf("the cluster does not record which objects belong to addon %q: import it by a JSON object with its manifests", name)
	}
	controlPlane, err := r.controlPlaneOf(ctx, d, cluster)
	return map[string]any{"name": name, "control_plane": controlPlane}, err
}

// ImportState implements resource.ResourceWithImportState.
func (r *addonResource) ImportState(ctx context.Context, req resource.ImportStateRequest, resp *resource.ImportStateResponse) {
	fail := func(err error) { session.AddError(&resp.Diagnostics, "Cannot import this addon", err) }
	if err := reference.ReadImportID(ctx, r.Session, req.ID, addonImportNeeds, r.lookUp, &resp.State); err != nil {
		fail(err)
		return
	}
	var m addonModel
	resp.Diagnostics.Append(resp.State.Get(ctx, &m)...)
	if resp.Diagnostics.HasError() {
		return
	}
	a := m.addon(ctx, &resp.Diagnostics)
	if resp.Diagnostics.HasError() {
		return
	}
	var rec addonRecord
	var err error
	if rec.Objects, rec.Claim, err = a.Find(ctx, r.Session.Fleet(ctx)); err != nil {
		fail(err)
		return
	}
	if rec.Claim, err = r.Session.ClaimID(rec.Claim); err != nil {
		fail(err)
		return
	}
	if len(rec.Objects) == 0 {
		fail(fmt.Errorf("none of the %d objects of addon %s exists in the cluster: remove the import, and apply creates them", len(a.Objects), a.Name))
		return
	}
	if m.Wait.IsNull() {
		m.Wait = types.BoolValue(true)
	}
	if m.ForceConflicts.IsNull() {
		m.ForceConflicts = types.BoolValue(false)
	}
	m.Drift, m.Replaces = tf.NoDrift(), tf.StringMapValue(nil)
	m.FinishedJobs = finished(nil)
	m.Claim = tf.OptionalString(rec.Claim)
	m.complete(ctx, a, &resp.Diagnostics)
	tf.WritePrivate(ctx, resp.Private, inventoryKey, rec, &resp.Diagnostics)
	resp.Diagnostics.Append(resp.State.Set(ctx, &m)...)
}
