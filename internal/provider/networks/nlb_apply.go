package networks

import (
	"context"
	"errors"

	"github.com/hashicorp/terraform-plugin-framework/types"

	infraaws "github.com/k8s-from-scratch/terraform-provider-k8s/infra/aws"
	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/aws/balancer"
	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/finding"
	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/parallel"
	"github.com/k8s-from-scratch/terraform-provider-k8s/internal/provider/owned"
	"github.com/k8s-from-scratch/terraform-provider-k8s/internal/provider/reference"
	"github.com/k8s-from-scratch/terraform-provider-k8s/internal/provider/session"
	"github.com/k8s-from-scratch/terraform-provider-k8s/internal/provider/tf"
)

// Make implements owned.Kind.
func (r *nlbResource) Make(ctx context.Context, op *owned.Operation, m *nlbModel) error {
	err := m.ensure(ctx, op)
	m.Drift = tf.NoDrift()
	m.outputs(ctx, op.Diags)
	return err
}

// ensure brings both load balancers to what is wanted, side by side, and sets the model's values to what
// exists then; what does not is null.
func (m *nlbModel) ensure(ctx context.Context, op *owned.Operation) error {
	all := m.wanted(ctx, op)
	for _, w := range all { // before anything is written
		if w.wanted {
			if err := balancer.CheckClaim(ctx, op.Client, w.arn(ctx, op), w.spec); err != nil {
				for _, w := range all {
					if w.value.IsUnknown() {
						*w.value = types.ObjectNull(balancerRef.Type().AttrTypes)
					}
				}
				return err
			}
		}
	}
	found, errs := make([]balancer.Balancer, len(all)), make([]error, len(all))
	var g parallel.Group
	for i, w := range all {
		arn := w.arn(ctx, op)
		if w.wanted {
			g.Go(func() error {
				found[i], errs[i] = balancer.Ensure(ctx, op.Client, arn, w.spec)
				return nil
			})
		}
	}
	_ = g.Wait() // their errors are in errs
	for i, w := range all {
		*w.value = types.ObjectNull(balancerRef.Type().AttrTypes)
		if found[i].ARN != "" {
			w.set(ctx, found[i])
			op.Exists(found[i].Claim, found[i].Unsettled)
		}
	}
	return errors.Join(errs...)
}

// Look implements owned.Kind.
func (r *nlbResource) Look(ctx context.Context, op *owned.Operation, m *nlbModel) error {
	for _, w := range m.wanted(ctx, op) {
		arn := w.arn(ctx, op)
		if arn == "" && !w.wanted {
			continue
		}
		found, differs, err := balancer.Observe(ctx, op.Client, arn, w.spec)
		switch {
		case errors.Is(err, infraaws.ErrNotFound):
			differs = []finding.Finding{{Kind: finding.Balancer, Problem: finding.Missing}}
			*w.value = types.ObjectNull(balancerRef.Type().AttrTypes)
		case err != nil:
			return err
		default:
			w.set(ctx, found)
			op.Exists(found.Claim, found.Unsettled)
		}
		op.Drift = append(op.Drift, finding.About(w.spec.Name+" load balancer", differs)...)
	}
	return nil
}

// Change implements owned.Kind. After an error the state has what exists, because it costs money, and the next plan
// goes on.
func (r *nlbResource) Change(ctx context.Context, op *owned.Operation, m, state *nlbModel) error {
	facing := state.wanted(ctx, op)[1]
	err := m.ensure(ctx, op)
	if arn := facing.arn(ctx, op); err == nil && !m.Public.ValueBool() && arn != "" {
		if err = balancer.Delete(ctx, op.Client, arn, facing.spec); err != nil && session.AddKept(op.Diags, "The public load balancer", err) {
			err = nil
		}
		if err != nil {
			m.Public, m.InternetFacing = types.BoolValue(true), state.InternetFacing
		}
	}
	if m.Internal.IsNull() {
		m.Internal = state.Internal
	}
	m.Claim, m.Drift = types.StringValue(op.Ownership.ID), tf.NoDrift()
	m.outputs(ctx, op.Diags)
	return err
}

// Remove implements owned.Kind. It deletes both, whatever the state says: an update may have ended between its calls.
func (r *nlbResource) Remove(ctx context.Context, op *owned.Operation, m *nlbModel) error {
	var errs []error
	for _, w := range m.wanted(ctx, op) {
		if err := balancer.Delete(ctx, op.Client, w.arn(ctx, op), w.spec); err != nil && !session.AddKept(op.Diags, "The "+w.spec.Name+" load balancer", err) {
			errs = append(errs, err)
		}
	}
	return errors.Join(errs...)
}

// Find implements owned.Kind. The controllers are left to the configuration.
func (r *nlbResource) Find(ctx context.Context, op *owned.Operation, cluster string, m *nlbModel) (err error) {
	m.Public = types.BoolValue(true)
	if m.Network, _, err = reference.FindNetwork(ctx, op.Client, cluster); err != nil {
		return err
	}
	for i, w := range m.wanted(ctx, op) {
		found, err := balancer.Find(ctx, op.Client, w.spec)
		switch {
		case i == 1 && errors.Is(err, infraaws.ErrNotFound):
			m.Public = types.BoolValue(false)
			continue
		case err != nil:
			return err
		case i == 0:
			m.Tags = op.Tags(found.Tags)
			op.Exists(found.Claim, nil)
		}
		w.set(ctx, found)
	}
	m.outputs(ctx, op.Diags)
	return nil
}
