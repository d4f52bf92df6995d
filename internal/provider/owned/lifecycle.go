package owned

import (
	"context"
	"errors"

	"github.com/hashicorp/terraform-plugin-framework/diag"
	"github.com/hashicorp/terraform-plugin-framework/path"
	"github.com/hashicorp/terraform-plugin-framework/resource"
	"github.com/hashicorp/terraform-plugin-framework/tfsdk"
	"github.com/hashicorp/terraform-plugin-framework/types"

	infraaws "github.com/k8s-from-scratch/terraform-provider-k8s/infra/aws"
	"github.com/k8s-from-scratch/terraform-provider-k8s/internal/provider/argument"
	"github.com/k8s-from-scratch/terraform-provider-k8s/internal/provider/session"
	"github.com/k8s-from-scratch/terraform-provider-k8s/internal/provider/tf"
)

// Create implements resource.Resource. What was made before a failure goes into the state, because it costs money.
func (r *Resource[M, P]) Create(ctx context.Context, req resource.CreateRequest, resp *resource.CreateResponse) {
	var m M
	diags := &resp.Diagnostics
	if diags.Append(req.Plan.Get(ctx, &m)...); diags.HasError() {
		return
	}
	common := P(&m).owned()
	ctx, cancel := argument.WithTimeout(ctx, common.Timeouts.Create, r.Deadlines.Create, diags)
	defer cancel()
	op := &Operation{Config: req.Config, Diags: diags, write: resp.Private}
	var err error
	if op.Client, err = r.Session.AWS(ctx); err == nil {
		op.Ownership, err = r.Session.NewOwnership(ctx, op.Client)
	}
	if err == nil {
		op.Ownership.Adopt = common.Adopt.ValueBool()
		err = r.Kind.Make(ctx, op, &m)
	}
	if err != nil {
		session.AddError(diags, "Cannot make "+argument.ObjectName(ctx, r.What, r.By, resp.State, req.Plan), err)
	}
	if !op.exists {
		return
	}
	if err == nil {
		r.Session.Claims.Made(op.Ownership.Claim, op.unsettled, nil)
	}
	common.Claim = types.StringValue(op.Ownership.ID)
	op.Keep(ctx, session.OwnershipKey, op.Ownership)
	diags.Append(resp.State.Set(ctx, &m)...)
}

// Read implements resource.Resource.
func (r *Resource[M, P]) Read(ctx context.Context, req resource.ReadRequest, resp *resource.ReadResponse) {
	var m M
	diags := &resp.Diagnostics
	req.State.Raw = argument.PauseExpiredNetwork(r.Session.AsPaused(req.State.Raw), r.Session.Now())
	if diags.Append(req.State.Get(ctx, &m)...); diags.HasError() {
		return
	}
	common, name := P(&m).owned(), argument.ObjectName(ctx, r.What, r.By, req.State, tfsdk.Plan{})
	ctx, cancel := argument.WithTimeout(ctx, common.Timeouts.Read, r.Deadlines.Read, diags)
	defer cancel()
	client, ok := r.Session.AWSForRead(ctx, "Cannot refresh "+name, diags)
	if !ok {
		return
	}
	op := &Operation{Client: client, Ownership: session.ReadOwnership(ctx, req.Private, common.Claim, diags), Diags: diags, read: req.Private, write: resp.Private}
	err := r.Session.Checked(ctx, client, op.Ownership)
	if err == nil {
		err = r.Kind.Look(ctx, op, &m)
	}
	if err == nil && op.exists {
		op.Ownership, err = r.Session.Recovered(ctx, client, op.Ownership, op.claim)
	}
	switch {
	case errors.Is(err, infraaws.ErrNotFound):
		// Terraform itself does not say why it creates something again.
		diags.AddWarning(argument.Upper(name)+" is gone", err.Error()+"\n\n"+r.WhenGone)
		resp.State.RemoveResource(ctx)
		return
	case err != nil:
		session.AddError(diags, "Cannot refresh "+name, err)
		return
	}
	r.Session.Settle(ctx, client, op.Ownership, op.unsettled)
	op.Keep(ctx, session.OwnershipKey, op.Ownership)
	common.Claim, common.Drift = tf.OptionalString(op.Ownership.ID), argument.DriftValue(op.Drift)
	diags.Append(resp.State.Set(ctx, &m)...)
}

// Update implements resource.Resource.
func (r *Resource[M, P]) Update(ctx context.Context, req resource.UpdateRequest, resp *resource.UpdateResponse) {
	var m, state M
	diags := &resp.Diagnostics
	diags.Append(req.Plan.Get(ctx, &m)...)
	if diags.Append(req.State.Get(ctx, &state)...); diags.HasError() {
		return
	}
	if argument.OnlyProtection(req) {
		diags.Append(resp.State.Set(ctx, &m)...)
		return
	}
	common, before := P(&m).owned(), P(&state).owned()
	if !r.TakesTurns {
		var cancel context.CancelFunc
		ctx, cancel = argument.WithTimeout(ctx, common.Timeouts.Update, r.Deadlines.Update, diags)
		defer cancel()
	}
	op := &Operation{
		Ownership:  session.ReadOwnership(ctx, req.Private, before.Claim, diags),
		RemoveTags: argument.RemovedKeys(before.TagsAll, common.TagsAll),
		Config:     req.Config, Diags: diags, read: req.Private, write: resp.Private,
	}
	var err error
	if op.Client, err = r.Session.AWS(ctx); err == nil {
		op.Ownership, err = r.Session.ForUpdate(ctx, op.Client, op.Ownership, common.Adopt)
	}
	if err == nil {
		err = r.Kind.Change(ctx, op, &m, &state)
		op.Keep(ctx, session.OwnershipKey, op.Ownership)
		if op.exists {
			r.Session.Settle(ctx, op.Client, op.Ownership, op.unsettled)
		}
	}
	if err != nil {
		session.AddError(diags, "Cannot change "+argument.ObjectName(ctx, r.What, r.By, req.State, req.Plan), err)
		if !op.exists {
			return
		}
	}
	diags.Append(resp.State.Set(ctx, &m)...)
}

// Delete implements resource.Resource. An object that another state owns by now is left alone.
func (r *Resource[M, P]) Delete(ctx context.Context, req resource.DeleteRequest, resp *resource.DeleteResponse) {
	var m M
	diags := &resp.Diagnostics
	diags.Append(req.State.Get(ctx, &m)...)
	name := argument.ObjectName(ctx, r.What, r.By, req.State, tfsdk.Plan{})
	if diags.HasError() || !argument.MayDelete(ctx, name, req.State, diags) {
		return
	}
	common := P(&m).owned()
	if !r.TakesTurns {
		var cancel context.CancelFunc
		ctx, cancel = argument.WithTimeout(ctx, common.Timeouts.Delete, r.Deadlines.Delete, diags)
		defer cancel()
	}
	op := &Operation{Ownership: session.ReadOwnership(ctx, req.Private, common.Claim, diags), Diags: diags, read: req.Private, write: resp.Private}
	var err error
	if op.Client, err = r.Session.AWS(ctx); err == nil {
		err = r.Session.Checked(ctx, op.Client, op.Ownership)
	}
	if err == nil {
		err = r.Kind.Remove(ctx, op, &m)
	}
	r.Session.Claims.Gone(op.Ownership.Claim)
	if err != nil && !session.AddKept(diags, argument.Upper(name), err) {
		session.AddError(diags, "Cannot delete "+name, err)
	}
}

// ImportState implements resource.ResourceWithImportState.
func (r *Resource[M, P]) ImportState(ctx context.Context, req resource.ImportStateRequest, resp *resource.ImportStateResponse) {
	op := r.find(ctx, r.Session, req.ID, &resp.State, &resp.Diagnostics)
	if resp.Diagnostics.HasError() {
		return
	}
	op.write = resp.Private
	op.Keep(ctx, session.OwnershipKey, op.Ownership)
}

// find sets a state to the object that an import id names. It changes nothing in AWS.
func (r *Resource[M, P]) find(ctx context.Context, d *session.Session, id string, into Target, diags *diag.Diagnostics) *Operation {
	var m M
	diags.Append(into.SetAttribute(ctx, path.Root("id"), id)...)
	diags.Append(into.Get(ctx, &m)...) // null, but of the right types
	op := &Operation{Diags: diags}
	var err error
	if op.Client, err = d.AWS(ctx); err == nil {
		err = r.Kind.Find(ctx, op, id, &m)
	}
	if err == nil {
		op.Ownership, err = d.Imported(ctx, op.Client, op.claim)
	}
	if err != nil {
		session.AddError(diags, "Cannot import "+r.What+" "+id, err)
		return op
	}
	common := P(&m).owned()
	common.TagsAll, common.Drift, common.Claim = d.FoundTags(common.Tags), tf.NoDrift(), types.StringValue(op.Ownership.ID)
	diags.Append(into.Set(ctx, &m)...)
	return op
}
