package rollout

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/finding"
	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/fleet"
	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/host"
	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/parallel"
	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/remote"
)

// Report is the result of observing a set of machines.
type Report struct {
	// Findings are the differences, of machines and of other named things. There is none about a
	// machine that could not be reached.
	Findings []finding.Finding
	// Unreachable is why machines could not be reached, by name.
	Unreachable map[string]error
	// Left is why machines that left the role while they could not be reached still cannot be, by
	// name. Those that answer are among the findings.
	Left map[string]error
	// Clocks is how far machines' clocks are ahead of the Engine's, negative for behind, where that
	// is more than fleet.ClockTolerance.
	Clocks map[string]time.Duration
	// Unjudged lists what else could not be compared, and why.
	Unjudged []finding.Finding
	// Concerns are facts that a person should know and that no apply changes.
	Concerns []finding.Finding
	// Certificates are the role's certificates as found on the machines.
	Certificates []fleet.Certificate
	// Details are facts that only this role reports, in a type of its package; nil if there are
	// none.
	Details any
	// Record is the given record, updated with what was found as wanted. Keeping it saves hashing
	// at the next observation. It is always valid to keep it.
	Record Record
}

// Report observes every machine of the role, and saves what was found as wanted in the record. Machines that do not answer within fleet.ObserveBudget
// are reported and are no error. more, if given, runs at the same time and adds what the machines
// themselves do not know.
func (o *Operation) Report(ctx context.Context, more func(context.Context, *Report)) Report {
	ctx = remote.RememberUnreachable(ctx, fleet.RememberFor)
	out, extra := newReport(), newReport()
	var errs map[string]error
	parallel.Do(ctx, func() {
		if more != nil {
			more(ctx, &extra)
		}
	}, func() {
		errs = fleet.EachAll(ctx, o.Machines, func(ctx context.Context, m *Machine) error {
			ctx, cancel := fleet.Observing(ctx)
			defer cancel()
			err := o.observe(ctx, m)
			if err == nil {
				m.Changes = host.Explain(ctx, m.Remote, m.State, m.Seen, m.Changes)
			}
			if err != nil && ctx.Err() != nil && !fleet.Unreachable(err) {
				err = fmt.Errorf("machine %s: %w (%w)", m.Name(), context.Cause(ctx), err)
			}
			return err
		})
	})
	for _, m := range o.Machines {
		if err := errs[m.Name()]; err != nil {
			out.Unreachable[m.Name()] = err
			continue
		}
		if m.ahead.Abs() > fleet.ClockTolerance {
			out.Clocks[m.Name()] = m.ahead
		}
		m.Record.Host = host.Adopt(m.State, m.Seen, m.Record.Host)
		o.save(m)
		out.Findings = append(out.Findings, finding.About(m.Name(), slices.Concat(host.Findings(m.Changes), host.Findings(m.claim), m.renewals()))...)
		out.Certificates = append(out.Certificates, m.certificates()...)
	}
	if len(out.Unreachable) == len(o.Machines) && o.role.AsksMachines {
		extra.Unjudged = nil // every question went to a machine that could not be reached, which is reported already
	}
	out.add(extra)
	for _, m := range o.Machines {
		if m.Host.Off { // on purpose, so there is nothing to report
			delete(out.Unreachable, m.Name())
		}
	}
	out.Record = o.Record()
	return out
}

func newReport() Report {
	return Report{Unreachable: map[string]error{}, Clocks: map[string]time.Duration{}}
}

// add merges another report into r. Machines that could not be reached get no findings.
func (r *Report) add(o Report) {
	for _, f := range o.Findings {
		if r.Unreachable[f.Subject] == nil {
			r.Findings = append(r.Findings, f)
		}
	}
	for name, err := range o.Unreachable {
		r.Unreachable[name] = errors.Join(r.Unreachable[name], err)
	}
	r.Unjudged = append(r.Unjudged, o.Unjudged...)
	r.Concerns = append(r.Concerns, o.Concerns...)
	r.Certificates = append(r.Certificates, o.Certificates...)
	if o.Details != nil {
		r.Details = o.Details
	}
}

// Find adds findings.
func (r *Report) Find(found ...finding.Finding) { r.Findings = append(r.Findings, found...) }

// CannotJudge notes an object that could not be compared; target may be empty.
func (r *Report) CannotJudge(kind finding.Kind, target string, err error) {
	r.Unjudged = append(r.Unjudged, finding.Finding{Kind: kind, Target: target, Problem: finding.Unjudged, Cause: err.Error()})
}
