package roles

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/hashicorp/terraform-plugin-framework/diag"
	"github.com/hashicorp/terraform-plugin-framework/resource"
	"github.com/hashicorp/terraform-plugin-framework/tfsdk"
	"github.com/hashicorp/terraform-plugin-framework/types"

	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/finding"
	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/fleet"
	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/foreign"
	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/remote"
	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/rollout"
	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/rollout/etcdcluster"
	"github.com/k8s-from-scratch/terraform-provider-k8s/internal/provider/argument"
	"github.com/k8s-from-scratch/terraform-provider-k8s/internal/provider/session"
	"github.com/k8s-from-scratch/terraform-provider-k8s/internal/provider/tf"
)

// What a role resource does on machines: create, update, refresh, delete.

// Create implements resource.Resource. The state is written only on success. After a failed create
// the next one observes the machines and continues. With a state, Terraform would mark the resource
// as tainted and destroy it first. An object that costs money is an exception: it goes into the
// state.
func (r *roleResource[M, S]) Create(ctx context.Context, req resource.CreateRequest, resp *resource.CreateResponse) {
	var plan, config M
	resp.Diagnostics.Append(req.Plan.Get(ctx, &plan)...)
	resp.Diagnostics.Append(req.Config.Get(ctx, &config)...)
	if resp.Diagnostics.HasError() {
		return
	}
	r.kind.common(&plan).readContents(ctx, req.Config, &resp.Diagnostics)
	ctx, cancel := argument.WithTimeout(ctx, r.kind.common(&plan).Timeouts.Create, roleDeadlines.Create, &resp.Diagnostics)
	defer cancel()
	var rec roleRecord
	var h session.Ownership
	acquired := r.converge(ctx, &plan, nil, &config, &rec, &h, false, &resp.Diagnostics)
	if resp.Diagnostics.HasError() && !acquired {
		return
	}
	r.fillUnknown(&plan)
	r.keepOwnership(ctx, resp.Private, h, &resp.Diagnostics)
	tf.WritePrivate(ctx, resp.Private, recordKey, rec, &resp.Diagnostics)
	resp.Diagnostics.Append(resp.State.Set(ctx, &plan)...)
}

// keepOwnership writes the ownership of a role that has one.
func (r *roleResource[M, S]) keepOwnership(ctx context.Context, p tf.PrivateStateWriter, h session.Ownership, diags *diag.Diagnostics) {
	if r.kind.acquire != nil {
		tf.WritePrivate(ctx, p, session.OwnershipKey, h, diags)
	}
}

// fillUnknown sets what a failed create has left unknown.
func (r *roleResource[M, S]) fillUnknown(m *M) {
	if common := r.kind.common(m); common.Files.IsUnknown() {
		common.Files = filesValue(nil, noLines)
	}
}

// Update implements resource.Resource.
func (r *roleResource[M, S]) Update(ctx context.Context, req resource.UpdateRequest, resp *resource.UpdateResponse) {
	var plan, prior, config M
	resp.Diagnostics.Append(req.Plan.Get(ctx, &plan)...)
	resp.Diagnostics.Append(req.Config.Get(ctx, &config)...)
	resp.Diagnostics.Append(req.State.Get(ctx, &prior)...)
	rec := tf.ReadPrivate[roleRecord](ctx, req.Private, recordKey, &resp.Diagnostics)
	if resp.Diagnostics.HasError() {
		return
	}
	if argument.OnlyProtection(req) {
		resp.Diagnostics.Append(resp.State.Set(ctx, &plan)...)
		return
	}
	r.kind.common(&plan).readContents(ctx, req.Config, &resp.Diagnostics)
	ctx, cancel := argument.WithTimeout(ctx, r.kind.common(&plan).Timeouts.Update, roleDeadlines.Update, &resp.Diagnostics)
	defer cancel()
	h := session.ReadOwnership(ctx, req.Private, r.kind.common(&prior).Claim, &resp.Diagnostics)
	off := r.power(ctx, req.Plan, &resp.Diagnostics).allOff()
	r.converge(ctx, &plan, &prior, &config, &rec, &h, off, &resp.Diagnostics)
	r.keepOwnership(ctx, resp.Private, h, &resp.Diagnostics)
	// The record contains what was done before a failure.
	tf.WritePrivate(ctx, resp.Private, recordKey, rec, &resp.Diagnostics)
	if resp.Diagnostics.HasError() {
		return
	}
	resp.Diagnostics.Append(resp.State.Set(ctx, &plan)...)
}

// converge applies the planned model, with the write-only values of the configuration, and completes it. It reports whether an object exists now that
// costs money. While all machines are off on purpose, only that object is applied.
func (r *roleResource[M, S]) converge(ctx context.Context, plan, prior, config *M, rec *roleRecord, h *session.Ownership, off bool, diags *diag.Diagnostics) (acquired bool) {
	r.Session.Successions.Applied(r.kind.name)
	common := r.kind.common(plan)
	rec.Record.Claim = cmp.Or(rec.Record.Claim, common.Claim.ValueString())
	if r.kind.acquire != nil {
		acquired = r.kind.acquire(ctx, r.Session, plan, prior, h, diags)
		r.kind.outputs(ctx, plan, diags)
	}
	var err error
	if rec.Record.Claim, err = r.Session.ClaimID(rec.Record.Claim, h.ID); err != nil {
		session.AddError(diags, "Cannot apply the "+r.kind.title, err)
	}
	if common.Claim.IsUnknown() {
		common.Claim = types.StringValue(rec.Record.Claim)
	}
	if diags.HasError() {
		return acquired
	}
	want := r.spec(ctx, plan, diags)
	if r.kind.given != nil {
		r.kind.given(ctx, config, &want)
	}
	if off {
		rec.addChecksums(want.Definition().Artifacts)
		common.Drift = tf.NoDrift()
		r.setFiles(plan, want, noLines, diags)
		r.kind.outputs(ctx, plan, diags)
		return acquired
	}
	var before rollout.Role
	if prior != nil {
		s := r.spec(ctx, prior, diags)
		rec.addChecksums(s.Definition().Artifacts)
		before = s
	}
	if diags.HasError() {
		return acquired
	}
	if pinChecksums(ctx, r.Session, rec, want.Definition().Artifacts, diags); diags.HasError() {
		return acquired
	}
	rec.Record, err = r.Session.Engine(ctx).Apply(ctx, want, before, rec.Record)
	forgetTerminated(ctx, r.Session, rec)
	r.warnOfLeft(rec.Record.Left, diags)
	r.warnOfConcerns(rec.Record.Concerns, diags)
	if err != nil {
		r.addError("apply", err, diags)
		return acquired
	}
	common.Drift = tf.NoDrift()
	r.setFiles(plan, want, noLines, diags)
	r.kind.outputs(ctx, plan, diags)
	if r.kind.observed != nil {
		report, err := r.Session.Engine(ctx).Observe(ctx, want, rec.Record)
		if err != nil {
			r.addError("look at", err, diags)
		}
		r.kind.observed(ctx, r.Session, plan, &report)
	}
	return acquired
}

// fromState returns the model in the state, its role, and its record with the checksums of the
// role's downloads.
func (r *roleResource[M, S]) fromState(ctx context.Context, from tfsdk.State, private tf.PrivateState, diags *diag.Diagnostics) (state M, spec S, rec roleRecord) {
	diags.Append(from.Get(ctx, &state)...)
	rec = tf.ReadPrivate[roleRecord](ctx, private, recordKey, diags)
	if diags.HasError() {
		return state, spec, rec
	}
	rec.Record.Claim = cmp.Or(rec.Record.Claim, r.kind.common(&state).Claim.ValueString())
	spec = r.spec(ctx, &state, diags)
	if !diags.HasError() {
		rec.addChecksums(spec.Definition().Artifacts)
	}
	return state, spec, rec
}

// Read implements resource.Resource.
func (r *roleResource[M, S]) Read(ctx context.Context, req resource.ReadRequest, resp *resource.ReadResponse) {
	req.State.Raw = r.Session.AsPaused(req.State.Raw)
	state, spec, rec := r.fromState(ctx, req.State, req.Private, &resp.Diagnostics)
	if resp.Diagnostics.HasError() {
		return
	}
	ctx, cancel := argument.WithTimeout(ctx, r.kind.common(&state).Timeouts.Read, roleDeadlines.Read, &resp.Diagnostics)
	defer cancel()
	off := r.power(ctx, req.State, &resp.Diagnostics).allOff()
	if !off && r.Session.WarnOfUnknownSSH(&resp.Diagnostics) {
		return
	}
	hadLeft := len(rec.Record.Left) > 0
	var drift []finding.Finding
	if r.kind.inspect != nil {
		h := session.ReadOwnership(ctx, req.Private, r.kind.common(&state).Claim, &resp.Diagnostics)
		drift = r.kind.inspect(ctx, r.Session, &state, &h, &resp.Diagnostics)
		if resp.Diagnostics.HasError() {
			return
		}
		r.keepOwnership(ctx, resp.Private, h, &resp.Diagnostics)
	}
	report, err := rollout.Report{Record: rec.Record}, error(nil)
	if !off && !leadsElsewhere(drift) {
		forgetTerminated(ctx, r.Session, &rec)
		report, err = r.Session.Engine(ctx).Observe(ctx, spec, rec.Record)
	}
	if err != nil {
		r.addError("refresh", err, &resp.Diagnostics)
		return
	}
	r.warn(report, &resp.Diagnostics)
	if resp.Diagnostics.HasError() {
		return
	}
	drift = append(report.Findings, drift...)
	r.kind.common(&state).Claim = tf.OptionalString(rec.Record.Claim)
	r.kind.common(&state).Drift = argument.DriftValue(drift)
	if r.kind.observed != nil {
		r.kind.observed(ctx, r.Session, &state, &report)
	}
	r.keepContents(ctx, req.Private, resp.Private, etcdcluster.Contents(report), &resp.Diagnostics)
	if len(report.Record.Machines) > 0 || hadLeft {
		// Keep what the report adds for machines without a record, as after an import.
		rec.Record = report.Record
		tf.WritePrivate(ctx, resp.Private, recordKey, rec, &resp.Diagnostics)
	}
	resp.Diagnostics.Append(resp.State.Set(ctx, &state)...)
}

// Delete implements resource.Resource.
func (r *roleResource[M, S]) Delete(ctx context.Context, req resource.DeleteRequest, resp *resource.DeleteResponse) {
	state, spec, rec := r.fromState(ctx, req.State, req.Private, &resp.Diagnostics)
	if resp.Diagnostics.HasError() {
		return
	}
	what := argument.ObjectName(ctx, r.kind.title, "id", req.State, tfsdk.Plan{})
	if !argument.MayDelete(ctx, what, req.State, &resp.Diagnostics) {
		return
	}
	ctx, cancel := argument.WithTimeout(ctx, r.kind.common(&state).Timeouts.Delete, roleDeadlines.Delete, &resp.Diagnostics)
	defer cancel()
	h := session.ReadOwnership(ctx, req.Private, r.kind.common(&state).Claim, &resp.Diagnostics)
	if r.Session.Elsewhere(ctx, what, h, &resp.Diagnostics); resp.Diagnostics.HasError() {
		return
	}
	if power := r.power(ctx, req.State, &resp.Diagnostics); power.allOff() {
		r.warnOfStopped(power, &resp.Diagnostics)
	} else if !r.remove(ctx, spec, rec, &resp.Diagnostics) {
		return
	}
	if r.kind.release != nil {
		r.kind.release(ctx, r.Session, &state, h, &resp.Diagnostics)
	}
	r.Session.Successions.Gone(r.kind.common(&state).Claim.ValueString())
}

// remove removes the role from its machines and reports whether that succeeded.
func (r *roleResource[M, S]) remove(ctx context.Context, spec S, rec roleRecord, diags *diag.Diagnostics) bool {
	removal, err := r.Session.Engine(ctx).Remove(ctx, spec, rec.Record)
	rec.Record.Left = removal.Left
	forgetTerminated(ctx, r.Session, &rec)
	r.warnOfAbandoned(rec.Record.Left, diags)
	r.warnOfKept(removal.Kept, diags)
	if err != nil {
		r.addError("delete", err, diags)
	}
	return err == nil
}

// warn adds one warning for each machine that does not answer, and an error for a machine whose
// host key is not the pinned one.
func (r *roleResource[M, S]) warn(report rollout.Report, diags *diag.Diagnostics) {
	for _, machine := range slices.Sorted(maps.Keys(report.Unreachable)) {
		err := report.Unreachable[machine]
		var stranger *remote.HostKeyError
		switch {
		case errors.As(err, &stranger):
			r.addError("refresh", err, diags)
		case session.MustChoose(err):
			r.Session.CheckAgentKey(diags)
		case r.Session.FirstWarning(machine):
			diags.AddWarning(unreachableSummary(machine, err),
				fmt.Sprintf("%s\n\nIts last known state is kept; whether anything differs on it is not known.\n\n%s", foreign.Text(err.Error()), session.Advice(err)))
		}
	}
	for _, machine := range slices.Sorted(maps.Keys(report.Clocks)) {
		if r.Session.FirstWarning("clock of " + machine) {
			diags.AddWarning(fmt.Sprintf("The clock of machine %s is off", machine),
				fmt.Sprintf("machine %s: %s.\n\nCorrect the clock that is wrong: certificates and leases depend on it.", machine, fleet.ClockWords(report.Clocks[machine])))
		}
	}
	silent := maps.Clone(report.Record.Left)
	maps.DeleteFunc(silent, func(name string, _ rollout.Leftover) bool { return report.Left[name] == nil })
	r.warnOfLeft(silent, diags)
	r.warnOfConcerns(report.Concerns, diags)
	for _, f := range report.Unjudged {
		diags.AddWarning("The "+r.kind.title+" could not be compared completely", foreign.Text(f.String()))
	}
}

// warnOfConcerns warns of facts that a person should know and that no apply changes. Of several warnings with the same
// summary Terraform shows one.
func (r *roleResource[M, S]) warnOfConcerns(concerns []finding.Finding, diags *diag.Diagnostics) {
	var lines []string
	for _, f := range concerns {
		lines = append(lines, f.Subject+": "+f.String()+".")
	}
	if len(lines) > 0 {
		diags.AddWarning("The "+r.kind.title+" needs attention", strings.Join(lines, "\n"))
	}
}

// unreachableSummary returns the title of the warning about a machine that does not answer.
func unreachableSummary(machine string, err error) string {
	var refused *remote.AuthError
	if errors.As(err, &refused) {
		return fmt.Sprintf("Machine %s refuses the SSH login", machine)
	}
	return fmt.Sprintf("Machine %s cannot be reached", machine)
}

func (r *roleResource[M, S]) addError(verb string, err error, diags *diag.Diagnostics) {
	var stranger *remote.HostKeyError
	if errors.As(err, &stranger) {
		session.AddError(diags, fmt.Sprintf("The SSH host key of %s is not the pinned one", stranger.Machine), err)
		return
	}
	session.AddError(diags, "Cannot "+verb+" the "+r.kind.title, err)
}
