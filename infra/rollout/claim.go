package rollout

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"

	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/finding"
	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/fleet"
	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/host"
)

// Two records of a role may have the same machine: when one record replaces the other before the
// other is removed, or when a host moves between two worker pools. The machine belongs to the
// record that was applied last. A file on it has the claim of that record, and a removal leaves a
// machine with the claim of another record. Terraform may apply both at the same time.

// newClaim returns a claim that no record has.
func newClaim() string { return strings.ToLower(rand.Text()) }

// writeClaims claims every machine that could be reached, unless this record has claimed it already. It comes last:
// a creation that fails loses its record, and then the former record must still remove the role. It is an error if
// the former record did so meanwhile.
func (o *Operation) writeClaims(ctx context.Context) error {
	return fleet.Each(ctx, o.Reachable(), func(ctx context.Context, m *Machine) error {
		theirs := m.isAnothers()
		if err := o.writeClaim(ctx, m, m.claim); err != nil || !theirs {
			return err
		}
		if err := o.observe(ctx, m); err != nil {
			return err
		}
		if len(m.Changes) > 0 {
			return fmt.Errorf("machine %s: another state has meanwhile removed the %s from it (%s): apply again", m.Name(), o.role.Name, m.Changes[0].Finding)
		}
		return nil
	})
}

// isAnothers reports whether the machine was seen with the claim of another record.
func (m *Machine) isAnothers() bool { return len(m.claim) > 0 && m.claim[0].Problem != finding.Missing }

func (o *Operation) writeClaim(ctx context.Context, m *Machine, changes []host.Change) error {
	_, err := host.Apply(ctx, m.Remote, o.claimed(), changes, host.Record{}, host.Options{})
	return withAdvice(m.Target, err)
}

// observeOwned observes a machine from which no other record will remove the role. A machine that may come from another
// record, such as a host that moves to another worker pool, is claimed first: the claim waits until a removal that has begun
// is over, and a later removal leaves the machine. A creation claims nothing yet, see writeClaims.
func (o *Operation) observeOwned(ctx context.Context, m *Machine) error {
	if o.arrives(m) {
		if err := o.take(ctx, m); err != nil {
			return err
		}
	}
	if err := o.observe(ctx, m); err != nil || o.Prior == nil || !m.isAnothers() {
		return err
	}
	if err := o.take(ctx, m); err != nil {
		return err
	}
	return o.observe(ctx, m)
}

// arrives reports whether the record did not have the machine before, so that another record may be giving it away.
func (o *Operation) arrives(m *Machine) bool {
	return o.Prior != nil && !slices.ContainsFunc(o.Prior.Targets, func(t fleet.Target) bool {
		return fleet.SameMachine(m.Target, t, o.role.Targets, o.Prior.Targets)
	})
}

// take claims a machine, whatever claim it has, once in an operation.
func (o *Operation) take(ctx context.Context, m *Machine) error {
	if m.taken {
		return nil
	}
	err := o.writeClaim(ctx, m, host.Diff(o.claimed(), host.Observation{}, host.Record{}))
	m.taken = err == nil
	return err
}

// Own returns the targets that no other record has claimed, now or when the role was to be removed from them.
func (o *Operation) Own(ctx context.Context, targets []fleet.Target) []fleet.Target {
	kept := o.Kept()
	return slices.DeleteFunc(fleet.Except(targets, o.others(ctx, targets)), func(t fleet.Target) bool {
		return slices.Contains(kept, t.Name()) || slices.Contains(kept, t.Former().Name())
	})
}

// claimOn returns the claim on a machine; empty if there is none.
func (r Definition) claimOn(ctx context.Context, m *fleet.Machine) (string, error) {
	found, err := host.Read(ctx, m.Remote, []string{r.claimPath()}, nil)
	if err != nil {
		return "", fmt.Errorf("reading who owns the %s on %s: %w", r.Name, m.Name(), err)
	}
	return strings.TrimSpace(string(found[r.claimPath()])), nil
}

// anothers reports whether a machine has the claim of another record. A record without a claim owns
// machines without one.
func (o *Operation) anothers(ctx context.Context, m *fleet.Machine) (bool, error) {
	ctx, cancel := fleet.Observing(ctx)
	defer cancel()
	claim, err := o.role.claimOn(ctx, m)
	return claim != "" && claim != o.record.Claim, err
}

// others returns the names of the machines with the claim of another record. A machine that does
// not answer is not among them: a removal asks again, on the machine.
func (o *Operation) others(ctx context.Context, targets []fleet.Target) []string {
	another := errors.New("another claim")
	errs := fleet.EachAll(ctx, o.Fleet.Machines(targets), func(ctx context.Context, m *fleet.Machine) error {
		if theirs, err := o.anothers(ctx, m); err != nil || !theirs {
			return nil //nolint:nilerr // see above
		}
		return another
	})
	return slices.Collect(maps.Keys(errs))
}

// Claim returns the claim on the first of a role's machines that answers, for a record that
// replaces a lost one. It is empty if there is none.
func (e *Engine) Claim(ctx context.Context, have Role) (string, error) {
	if err := checkRole(have); err != nil {
		return "", err
	}
	r := have.Definition()
	var errs []error
	for _, t := range r.Targets {
		claim, err := r.claimOn(ctx, e.Fleet.Machine(t))
		if err == nil {
			return claim, nil
		}
		errs = append(errs, err)
	}
	return "", errors.Join(errs...)
}

// Claims returns the claim of a role on each machine that has one, by the machine's name. kind is the name of the
// role's definition.
func (e *Engine) Claims(ctx context.Context, kind string, targets []fleet.Target) (map[string]string, error) {
	var mu sync.Mutex
	out := map[string]string{}
	err := fleet.Each(ctx, e.Fleet.Machines(targets), func(ctx context.Context, m *fleet.Machine) error {
		claim, err := Definition{Name: kind}.claimOn(ctx, m)
		mu.Lock()
		defer mu.Unlock()
		if claim != "" {
			out[m.Name()] = claim
		}
		return err
	})
	return out, err
}
