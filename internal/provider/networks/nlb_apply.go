package networks

import (
	"context"
	"errors"

	"github.com/hashicorp/terraform-plugin-framework/diag"
	"github.com/hashicorp/terraform-plugin-framework/path"
	"github.com/hashicorp/terraform-plugin-framework/resource"
	"github.com/hashicorp/terraform-plugin-framework/types"
	"golang.org/x/sync/errgroup"

	infraaws "github.com/k8s-from-scratch/terraform-provider-k8s/infra/aws"
	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/aws/balancer"
	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/finding"
	"github.com/k8s-from-scratch/terraform-provider-k8s/internal/provider/argument"
	"github.com/k8s-from-scratch/terraform-provider-k8s/internal/provider/reference"
	"github.com/k8s-from-scratch/terraform-provider-k8s/internal/provider/session"
	"github.com/k8s-from-scratch/terraform-provider-k8s/internal/provider/tf"
)

// Create implements resource.Resource. What was made before a failure goes into the state, because it costs
// money.
func (r *nlbResource) Create(ctx context.Context, req resource.CreateRequest, resp *resource.CreateResponse) {
	var m nlbModel
	resp.Diagnostics.Append(req.Plan.Get(ctx, &m)...)
	if resp.Diagnostics.HasError() {
		return
	}
	ctx, cancel := tf.WithTimeout(ctx, m.Timeouts.Create, nlbTimeout, &resp.Diagnostics)
	defer cancel()
	client, err := r.Session.AWS(ctx)
	var h session.Holding
	if err == nil {
		h, err = r.Session.NewHolding(ctx, client)
	}
	if err != nil {
		session.AddError(&resp.Diagnostics, "Cannot make the network load balancer", err)
		return
	}
	h.Adopt = m.Adopt.ValueBool()
	unsettled, err := m.ensure(ctx, client, h, nil, &resp.Diagnostics)
	if err != nil {
		session.AddError(&resp.Diagnostics, "Cannot make the network load balancer", err)
		if m.Internal.IsNull() && m.InternetFacing.IsNull() {
			return
		}
	} else {
		r.Session.Claims.Made(h.Claim, unsettled, nil)
	}
	m.Claim, m.Drift = types.StringValue(h.ID), tf.NoDrift()
	m.outputs(ctx, &resp.Diagnostics)
	tf.WritePrivate(ctx, resp.Private, session.HoldingKey, h, &resp.Diagnostics)
	resp.Diagnostics.Append(resp.State.Set(ctx, &m)...)
}

// ensure brings both load balancers to what is wanted, side by side, and sets the model's values to what
// exists then; what does not is null. It returns what carries a claim that is not settled.
func (m *nlbModel) ensure(ctx context.Context, client *infraaws.Client, h session.Holding, removeTags []string, diags *diag.Diagnostics) (unsettled []string, err error) {
	all := m.wanted(ctx, h, diags)
	for _, w := range all { // before anything is written
		if w.wanted {
			if err := balancer.CheckClaim(ctx, client, w.arn(ctx, diags), w.spec); err != nil {
				for _, w := range all {
					if w.value.IsUnknown() {
						*w.value = types.ObjectNull(balancerRef.Type().AttrTypes)
					}
				}
				return nil, err
			}
		}
	}
	found, errs := make([]balancer.Balancer, len(all)), make([]error, len(all))
	var g errgroup.Group
	for i, w := range all {
		arn := w.arn(ctx, diags)
		w.spec.RemoveTags = removeTags
		if w.wanted {
			g.Go(func() error {
				found[i], errs[i] = balancer.Ensure(ctx, client, arn, w.spec)
				return nil
			})
		}
	}
	_ = g.Wait() // their errors are in errs
	for i, w := range all {
		*w.value = types.ObjectNull(balancerRef.Type().AttrTypes)
		if found[i].ARN != "" {
			w.set(ctx, found[i])
			unsettled = append(unsettled, found[i].Unsettled...)
		}
	}
	return unsettled, errors.Join(errs...)
}

// Read implements resource.Resource.
func (r *nlbResource) Read(ctx context.Context, req resource.ReadRequest, resp *resource.ReadResponse) {
	var m nlbModel
	resp.Diagnostics.Append(req.State.Get(ctx, &m)...)
	if resp.Diagnostics.HasError() {
		return
	}
	ctx, cancel := tf.WithTimeout(ctx, m.Timeouts.Read, argument.ReadTimeout, &resp.Diagnostics)
	defer cancel()
	const title = "Cannot refresh the network load balancer"
	client, ok := r.Session.AWSForRead(ctx, title, &resp.Diagnostics)
	if !ok {
		return
	}
	h := session.ReadHolding(ctx, req.Private, m.Claim, &resp.Diagnostics)
	if err := r.Session.Checked(ctx, client, h); err != nil {
		session.AddError(&resp.Diagnostics, title, err)
		return
	}
	var drift []finding.Finding
	var unsettled []string
	for _, w := range m.wanted(ctx, h, &resp.Diagnostics) {
		arn := w.arn(ctx, &resp.Diagnostics)
		if arn == "" && !w.wanted {
			continue
		}
		found, differs, err := balancer.Observe(ctx, client, arn, w.spec)
		if err == nil {
			h, err = r.Session.Recovered(ctx, client, h, found.Claim)
		}
		switch {
		case errors.Is(err, infraaws.ErrNotFound):
			differs = []finding.Finding{{Kind: finding.Balancer, Problem: finding.Missing}}
			*w.value = types.ObjectNull(balancerRef.Type().AttrTypes)
		case err != nil:
			session.AddError(&resp.Diagnostics, title, err)
			return
		default:
			w.set(ctx, found)
			unsettled = append(unsettled, found.Unsettled...)
		}
		drift = append(drift, finding.About(w.spec.Name+" load balancer", differs)...)
	}
	r.Session.Settle(ctx, client, h, unsettled)
	tf.WritePrivate(ctx, resp.Private, session.HoldingKey, h, &resp.Diagnostics)
	m.Claim, m.Drift = tf.OptionalString(h.ID), argument.DriftValue(drift)
	resp.Diagnostics.Append(resp.State.Set(ctx, &m)...)
}

// Update implements resource.Resource.
func (r *nlbResource) Update(ctx context.Context, req resource.UpdateRequest, resp *resource.UpdateResponse) {
	var m, state nlbModel
	resp.Diagnostics.Append(req.Plan.Get(ctx, &m)...)
	resp.Diagnostics.Append(req.State.Get(ctx, &state)...)
	if resp.Diagnostics.HasError() {
		return
	}
	if argument.OnlyProtection(req) {
		resp.Diagnostics.Append(resp.State.Set(ctx, &m)...)
		return
	}
	ctx, cancel := tf.WithTimeout(ctx, m.Timeouts.Update, nlbTimeout, &resp.Diagnostics)
	defer cancel()
	const title = "Cannot change the network load balancer"
	client, err := r.Session.AWS(ctx)
	var h session.Holding
	if err == nil {
		h, err = r.Session.ForUpdate(ctx, client, session.ReadHolding(ctx, req.Private, state.Claim, &resp.Diagnostics), m.Adopt)
	}
	if err != nil {
		session.AddError(&resp.Diagnostics, title, err)
		return
	}
	tf.WritePrivate(ctx, resp.Private, session.HoldingKey, h, &resp.Diagnostics)
	facing := state.wanted(ctx, h, &resp.Diagnostics)[1]
	unsettled, err := m.ensure(ctx, client, h, argument.RemovedKeys(state.TagsAll, m.TagsAll), &resp.Diagnostics)
	if arn := facing.arn(ctx, &resp.Diagnostics); err == nil && !m.Public.ValueBool() && arn != "" {
		if err = balancer.Delete(ctx, client, arn, facing.spec); err != nil && session.AddKept(&resp.Diagnostics, "The public load balancer", err) {
			err = nil
		}
		if err != nil {
			m.Public, m.InternetFacing = types.BoolValue(true), state.InternetFacing
		}
	}
	if err != nil {
		// The state has what exists now, because it costs money, and the next plan goes on.
		session.AddError(&resp.Diagnostics, title, err)
		if m.Internal.IsNull() {
			m.Internal = state.Internal
		}
	}
	r.Session.Settle(ctx, client, h, unsettled)
	m.Claim, m.Drift = types.StringValue(h.ID), tf.NoDrift()
	m.outputs(ctx, &resp.Diagnostics)
	resp.Diagnostics.Append(resp.State.Set(ctx, &m)...)
}

// Delete implements resource.Resource. A load balancer that is another's by now is left alone.
func (r *nlbResource) Delete(ctx context.Context, req resource.DeleteRequest, resp *resource.DeleteResponse) {
	var m nlbModel
	resp.Diagnostics.Append(req.State.Get(ctx, &m)...)
	if resp.Diagnostics.HasError() || !argument.MayDelete(ctx, "the network load balancer of cluster "+m.ID.ValueString(), req.State, &resp.Diagnostics) {
		return
	}
	ctx, cancel := tf.WithTimeout(ctx, m.Timeouts.Delete, nlbTimeout, &resp.Diagnostics)
	defer cancel()
	h := session.ReadHolding(ctx, req.Private, m.Claim, &resp.Diagnostics)
	client, err := r.Session.AWS(ctx)
	if err == nil {
		err = r.Session.Checked(ctx, client, h)
	}
	if err != nil {
		session.AddError(&resp.Diagnostics, "Cannot delete the network load balancer", err)
		return
	}
	for _, w := range m.wanted(ctx, h, &resp.Diagnostics) {
		// Both, whatever the state says: an update may have ended between its calls.
		err := balancer.Delete(ctx, client, w.arn(ctx, &resp.Diagnostics), w.spec)
		if err != nil && !session.AddKept(&resp.Diagnostics, "The "+w.spec.Name+" load balancer", err) {
			session.AddError(&resp.Diagnostics, "Cannot delete the network load balancer", err)
		}
	}
	r.Session.Claims.Gone(h.Claim)
}

// ImportState implements resource.ResourceWithImportState. The controllers are left to the configuration.
func (r *nlbResource) ImportState(ctx context.Context, req resource.ImportStateRequest, resp *resource.ImportStateResponse) {
	fail := func(err error) {
		session.AddError(&resp.Diagnostics, "Cannot import the network load balancer of cluster "+req.ID, err)
	}
	client, err := r.Session.AWS(ctx)
	if err != nil {
		fail(err)
		return
	}
	network, _, err := reference.FindNetwork(ctx, client, req.ID)
	if err != nil {
		fail(err)
		return
	}
	var m nlbModel
	resp.Diagnostics.Append(resp.State.SetAttribute(ctx, path.Root("id"), req.ID)...)
	resp.Diagnostics.Append(resp.State.Get(ctx, &m)...)
	m.Network, m.Public = network, types.BoolValue(true)
	var h session.Holding
	for i, w := range m.wanted(ctx, session.Holding{}, &resp.Diagnostics) {
		found, err := balancer.Find(ctx, client, w.spec)
		if i == 1 && errors.Is(err, infraaws.ErrNotFound) {
			m.Public = types.BoolValue(false)
			continue
		}
		if err == nil && i == 0 {
			m.Tags = types.MapNull(types.StringType)
			if own := client.OwnTags(found.Tags); own != nil {
				m.Tags = tf.StringMapValue(own)
			}
			h, err = r.Session.Imported(ctx, client, found.Claim)
		}
		if err != nil {
			fail(err)
			return
		}
		w.set(ctx, found)
	}
	m.TagsAll, m.Drift, m.Claim = r.Session.FoundTags(m.Tags), tf.NoDrift(), types.StringValue(h.ID)
	m.outputs(ctx, &resp.Diagnostics)
	tf.WritePrivate(ctx, resp.Private, session.HoldingKey, h, &resp.Diagnostics)
	resp.Diagnostics.Append(resp.State.Set(ctx, &m)...)
}
