package fleet

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/util/wait"

	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/component"
	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/deed"
	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/etcd"
	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/host"
	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/kube"
	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/patience"
	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/timing"
)

// The units of each kind of machine, as far as all machines of the kind have them.
var (
	ControllerUnits = []string{component.APIServerUnit, component.ControllerManagerUnit, component.SchedulerUnit}
	MemberUnits     = []string{component.EtcdUnit}
	WorkerUnits     = []string{component.ContainerdUnit, component.KubeletUnit, component.KubeProxyUnit}
)

// errCrashed marks the end of a wait for a unit that has failed.
var errCrashed = errors.New("unit is not coming up")

// Watch returns a function to call between the polls of a wait for a unit's service. It returns an
// error when the unit has failed or keeps crashing. It asks the machine at most once per UnitPoll
// and ignores that it cannot be reached.
func (m *Machine) Watch(unit string) func(context.Context) error {
	var (
		next  time.Time
		first = -1
	)
	return func(ctx context.Context) error {
		if now := time.Now(); now.Before(next) {
			return nil
		} else {
			next = now.Add(UnitPoll)
		}
		u, err := host.UnitLife(ctx, m.Remote, unit)
		if err != nil {
			return nil //nolint:nilerr // the wait itself continues and is bounded
		}
		if first < 0 {
			first = u.Restarts
		}
		switch {
		case u.ActiveState == "failed":
			return fmt.Errorf("%w: %s is failed (%s)", errCrashed, unit, u.Result)
		case u.Restarts-first >= crashLoop:
			return fmt.Errorf("%w: %s keeps crashing (%s, restarted %d times)", errCrashed, unit, cmp.Or(host.LastFailure(ctx, m.Remote, unit), u.Result), u.Restarts-first)
		}
		return nil
	}
}

// WaitActive waits until systemd has started a unit, at boot or after the unit has exited. It waits
// at most startBudget.
func (m *Machine) WaitActive(ctx context.Context, unit string) error {
	watch := m.Watch(unit)
	err := Within(ctx, startBudget, "start of "+unit, func(ctx context.Context) error {
		return wait.PollUntilContextCancel(ctx, Poll, true, func(ctx context.Context) (bool, error) {
			u, err := host.UnitLife(ctx, m.Remote, unit)
			if err == nil && u.ActiveState == "active" {
				return true, nil
			}
			return false, watch(ctx)
		})
	})
	return m.UnitError(ctx, "wait for "+unit, unit, err)
}

// WaitAPIServer waits, at most APIBudget, until the machine's API server is ready. c is its client.
func (m *Machine) WaitAPIServer(ctx context.Context, c *kube.Client) error {
	err := Within(ctx, APIBudget, "API server", func(ctx context.Context) error {
		return c.WaitReady(ctx, Poll, m.Watch(component.APIServerUnit))
	})
	if err == nil {
		m.Say("API server: ready")
	}
	return m.UnitError(ctx, "wait for the API server", component.APIServerUnit, err)
}

// WaitMember waits, at most EtcdBudget, until the machine's etcd member is healthy. Only a member
// that has caught up is: it answers a linearizable read. One with an alarm is not, and nothing is
// waited for then. c is its client.
func (m *Machine) WaitMember(ctx context.Context, c *etcd.Client) error {
	return m.waitMember(ctx, "healthy", c.WaitHealthy)
}

// WaitServes is WaitMember for a member that may have an alarm.
func (m *Machine) WaitServes(ctx context.Context, c *etcd.Client) error {
	return m.waitMember(ctx, "serves reads", c.WaitServes)
}

func (m *Machine) waitMember(ctx context.Context, state string, wait func(context.Context, func(context.Context) error) error) error {
	err := Within(ctx, EtcdBudget, "etcd member", func(ctx context.Context) error {
		return wait(ctx, m.Watch(component.EtcdUnit))
	})
	if err == nil {
		m.Say("etcd: %s", state)
	}
	return m.UnitError(ctx, "wait for the etcd member", component.EtcdUnit, err)
}

// Stop stops a unit and waits until it has ended. by names the operation in progress messages.
func (m *Machine) Stop(ctx context.Context, by, unit string) error {
	m.Say("%s: stopping %s", by, unit)
	err := Within(ctx, APIBudget, "end of "+unit, func(ctx context.Context) error { return deed.Stop(ctx, m.Remote, unit) })
	return m.UnitError(ctx, "stop", unit, err)
}

// UnitError makes a StepError of a failed wait for a unit's service, with the end of the unit's
// journal. It fetches the journal on a context of its own, because the operation's has often ended
// by then.
func (m *Machine) UnitError(ctx context.Context, step, unit string, err error) error {
	if err == nil {
		return nil
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), patience.Of(ctx, LeaveBudget))
	defer cancel()
	journal := host.Journal(ctx, m.Remote, unit, journalLines)
	return &StepError{Machine: m.Name(), Step: step, Err: err, Unit: unit, Journal: journal,
		Causes: host.Causes(ctx, m.Remote, host.Said(err)+"\n"+journal),
		Next:   m.JournalCommand(unit)}
}

// JournalCommand returns the command with which a person reads a unit's journal.
func (t Target) JournalCommand(unit string) string {
	return t.SSH("sudo journalctl --unit " + unit + " --lines 50 --no-pager")
}

// SSH returns the command with which a person runs a command on the machine.
func (t Target) SSH(command string) string {
	h := t.Host
	parts := []string{"ssh"}
	if h.Bastion != nil {
		parts = append(parts, "-J", h.Bastion.User+"@"+h.Bastion.Address)
	}
	if h.Port != 0 && h.Port != 22 {
		parts = append(parts, "-p", strconv.Itoa(h.Port))
	}
	return strings.Join(append(parts, h.User+"@"+h.Address, command), " ")
}

// Within runs f with a deadline of its own, see package patience. If the deadline ended it, the error says what was
// waited for and how long.
func Within(ctx context.Context, budget time.Duration, what string, f func(context.Context) error) error {
	budget = patience.Of(ctx, budget)
	expired := fmt.Errorf("%s: not within %s", what, budget)
	ctx, cancel := context.WithTimeoutCause(ctx, budget, expired)
	defer cancel()
	waiting, end := timing.Begin(ctx, "wait: "+what)
	defer end()
	err := f(waiting)
	if err != nil && errors.Is(context.Cause(ctx), expired) && !errors.Is(err, expired) {
		return fmt.Errorf("%w: %w", expired, err)
	}
	return err
}
