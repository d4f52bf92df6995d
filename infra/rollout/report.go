package rollout

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/fleet"
	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/host"
	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/remote"
)

// Report is what observing a set of machines found.
type Report struct {
	// Drift says in words what differs, by machine; several differences are
	// joined by "; ". Machines that could not be reached are not in it.
	Drift map[string]string
	// Unreachable holds the machines that could not be asked, and why.
	Unreachable map[string]error
	// Clocks holds how far clocks are ahead of the Engine's, negative for
	// behind, of those machines where it is enough to matter.
	Clocks map[string]time.Duration
	// Warnings tell what else could not be judged, one sentence each.
	Warnings []string
	// Certificates are those the role owns, as found on the machines.
	Certificates []CertificateStatus
	// Record is the record brought up to date with what was found as wanted;
	// keeping it spares the next look some hashing. It is never worse than the
	// one given.
	Record Record
}

// CertificateStatus is one certificate on one machine.
type CertificateStatus struct {
	Machine  string    `json:"machine"`
	Path     string    `json:"path"`
	Subject  string    `json:"subject"` // common name
	Issuer   string    `json:"issuer"`  // common name
	NotAfter time.Time `json:"not_after"`
}

// report observes every machine of the role and says what differs. Machines
// that do not answer within observeBudget are reported, not failed on; more,
// when given, runs meanwhile and adds what the machines themselves cannot tell.
func (o *operation) report(ctx context.Context, more func(context.Context, *Report)) Report {
	ctx = remote.Recalling(ctx, recallFor)
	out, extra := newReport(), newReport()
	var wait sync.WaitGroup
	if more != nil {
		wait.Go(func() { more(ctx, &extra) })
	}
	errs := fleet.EachAll(ctx, o.machines, func(ctx context.Context, m *convergence) error {
		ctx, cancel := context.WithTimeoutCause(ctx, fleet.ObserveBudget,
			fmt.Errorf("no answer within %s", fleet.ObserveBudget))
		defer cancel()
		err := o.observe(ctx, m)
		if err != nil && ctx.Err() != nil && !fleet.Unreachable(err) {
			err = fmt.Errorf("machine %s: %w (%w)", m.Name(), context.Cause(ctx), err)
		}
		return err
	})
	wait.Wait()
	for _, m := range o.machines {
		if err := errs[m.Name()]; err != nil {
			out.Unreachable[m.Name()] = err
			continue
		}
		if m.ahead.Abs() > fleet.ClockTolerance {
			out.Clocks[m.Name()] = m.ahead
		}
		m.record.Host = host.Adopt(m.state, m.seen, m.record.Host)
		o.save(m)
		words := m.renewals()
		if len(m.changes) > 0 {
			words = append([]string{host.Words(m.changes)}, words...)
		}
		if len(words) > 0 {
			out.Drift[m.Name()] = strings.Join(words, "; ")
		}
		out.Certificates = append(out.Certificates, m.certificates()...)
	}
	if len(out.Unreachable) == len(o.machines) && o.role.asksMachines {
		extra.Warnings = nil // none of those that were asked could be reached, as is said already
	}
	out.add(extra)
	out.Record = o.result()
	return out
}

func newReport() Report {
	return Report{Drift: map[string]string{}, Unreachable: map[string]error{}, Clocks: map[string]time.Duration{}}
}

// add merges another report into r. Machines that could not be reached stay
// without drift.
func (r *Report) add(o Report) {
	for _, name := range slices.Sorted(maps.Keys(o.Drift)) {
		switch had, known := r.Drift[name]; {
		case r.Unreachable[name] != nil:
		case known:
			r.Drift[name] = had + "; " + o.Drift[name]
		default:
			r.Drift[name] = o.Drift[name]
		}
	}
	for name, err := range o.Unreachable {
		r.Unreachable[name] = errors.Join(r.Unreachable[name], err)
	}
	r.Warnings = append(r.Warnings, o.Warnings...)
	r.Certificates = append(r.Certificates, o.Certificates...)
}

func (r *Report) addWords(key string, words []string) {
	if len(words) > 0 {
		r.add(Report{Drift: map[string]string{key: strings.Join(words, "; ")}})
	}
}

func (r *Report) warn(format string, args ...any) {
	r.Warnings = append(r.Warnings, fmt.Sprintf(format, args...))
}
