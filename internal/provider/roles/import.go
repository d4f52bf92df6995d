package roles

import (
	"context"
	"errors"

	"github.com/hashicorp/terraform-plugin-framework/diag"
	"github.com/hashicorp/terraform-plugin-framework/resource"
	"github.com/hashicorp/terraform-plugin-framework/tfsdk"

	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/component"
	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/rollout"
	"github.com/k8s-from-scratch/terraform-provider-k8s/internal/provider/reference"
	"github.com/k8s-from-scratch/terraform-provider-k8s/internal/provider/session"
	"github.com/k8s-from-scratch/terraform-provider-k8s/internal/provider/tf"
)

// A role resource is imported by the arguments that are only in the configuration: its hosts and its references. They
// are looked up in AWS by the cluster's name, or given as a JSON object. Everything else is read from the first machine
// that answers. The refresh that follows finds out whether the other machines are the same.

// importer says how a role is imported.
type importer[M any, S rollout.Role] struct {
	needs   []string // arguments that the id must contain
	machine string   // what one of its machines is: "etcd member"
	// complete adds what the machine does not know, such as what other machines or the API know;
	// nil if there is nothing to add.
	complete func(ctx context.Context, d *session.Session, m *M, found *S, diags *diag.Diagnostics)
	// lookUp takes an id that is not a JSON object.
	lookUp reference.IDLookup
	// ownership returns who owns the object in AWS; nil for a role that owns none.
	ownership func(ctx context.Context, d *session.Session, m *M) (session.Ownership, error)
}

var _ resource.ResourceWithImportState = (*roleResource[any, rollout.Role])(nil)

// ImportState implements resource.ResourceWithImportState.
func (r *roleResource[M, S]) ImportState(ctx context.Context, req resource.ImportStateRequest, resp *resource.ImportStateResponse) {
	m, rec := r.find(ctx, req.ID, &resp.State, &resp.Diagnostics)
	if resp.Diagnostics.HasError() {
		return
	}
	if r.kind.importer.ownership != nil {
		h, err := r.kind.importer.ownership(ctx, r.Session, &m)
		if err != nil {
			session.AddError(&resp.Diagnostics, "Cannot import this "+r.kind.title, err)
			return
		}
		r.keepOwnership(ctx, resp.Private, h, &resp.Diagnostics)
	}
	r.kind.common(&m).Drift = tf.NoDrift()
	r.kind.common(&m).Claim = tf.OptionalString(rec.Record.Claim)
	tf.WritePrivate(ctx, resp.Private, recordKey, rec, &resp.Diagnostics)
	resp.Diagnostics.Append(resp.State.Set(ctx, &m)...)
}

// find returns the role that an import id names, as it is found on its machines. It writes the arguments of the id into
// the state.
func (r *roleResource[M, S]) find(ctx context.Context, id string, state *tfsdk.State, diags *diag.Diagnostics) (m M, rec roleRecord) {
	if err := reference.ReadImportID(ctx, r.Session, id, r.kind.importer.needs, r.kind.importer.lookUp, state); err != nil {
		session.AddError(diags, "Cannot import this "+r.kind.title, err)
		return m, rec
	}
	rec.Record.Formed = true
	if diags.Append(state.Get(ctx, &m)...); !diags.HasError() {
		r.readMachines(ctx, &m, &rec, diags)
	}
	return m, rec
}

// readMachines completes a model with what is found on its machines.
func (r *roleResource[M, S]) readMachines(ctx context.Context, m *M, rec *roleRecord, diags *diag.Diagnostics) {
	given := r.specWithoutDownloads(ctx, m, diags)
	if diags.HasError() {
		return
	}
	node, files, err := r.Session.Engine(ctx).Inspect(ctx, given)
	switch {
	case errors.Is(err, rollout.ErrNoMachines):
		diags.AddError("Cannot import this "+r.kind.title, "The import id names no machines, so there is nothing to read. A worker pool without nodes needs no import: an apply makes it, and changes nothing.")
		return
	case err != nil:
		session.AddError(diags, "Cannot import this "+r.kind.title, err)
		return
	}
	found, err := rollout.ReadRole(given, node, files)
	var nothing *component.NothingFoundError
	switch {
	case errors.As(err, &nothing):
		diags.AddError("Nothing to import", nothing.Reason)
	case err != nil:
		session.AddError(diags, "Cannot read the configuration of this "+r.kind.importer.machine, err)
	case r.kind.importer.complete != nil:
		r.kind.importer.complete(ctx, r.Session, m, &found, diags)
	}
	if diags.HasError() {
		return
	}
	r.kind.settings.fromSpec(ctx, &found, m)
	r.kind.outputs(ctx, m, diags)
	spec := r.spec(ctx, m, diags)
	if diags.HasError() {
		return
	}
	if pinChecksums(ctx, r.Session, rec, spec.Definition().Artifacts, diags); diags.HasError() {
		return
	}
	if rec.Record.Claim, err = r.Session.Engine(ctx).Claim(ctx, spec); err == nil {
		rec.Record.Claim, err = r.Session.ClaimID(rec.Record.Claim)
	}
	if err != nil {
		session.AddError(diags, "Cannot import this "+r.kind.title, err)
	}
	r.setFiles(m, spec, noLines, diags)
	r.kind.outputs(ctx, m, diags)
}
