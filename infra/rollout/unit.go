package rollout

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/util/wait"

	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/host"
	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/remote"
)

// errCrashed marks the end of a wait for something whose unit has died.
var errCrashed = errors.New("unit is not coming up")

// watchUnit returns a function that is to be called between the polls of a
// wait for what a unit serves. It returns an error when the unit has failed or
// keeps crashing, and asks the machine at most once per unitPoll. Not reaching
// the machine is no news of the unit.
func (o *operation) watchUnit(m *machine, unit string) func(context.Context) error {
	var (
		next  time.Time
		first = -1
	)
	return func(ctx context.Context) error {
		if now := time.Now(); now.Before(next) {
			return nil
		} else {
			next = now.Add(unitPoll)
		}
		props, err := unitProperties(ctx, m.runner, unit)
		if err != nil {
			return nil //nolint:nilerr // the wait itself goes on and is bounded
		}
		restarts, _ := strconv.Atoi(props["NRestarts"])
		if first < 0 {
			first = restarts
		}
		switch {
		case props["ActiveState"] == "failed":
			return fmt.Errorf("%w: %s is failed (%s)", errCrashed, unit, props["Result"])
		case restarts-first >= crashLoop:
			return fmt.Errorf("%w: %s keeps crashing (%s, restarted %d times)", errCrashed, unit, props["Result"], restarts-first)
		}
		return nil
	}
}

// waitActive waits until a unit that systemd starts, at boot or after it has
// ended by itself, has started.
func (o *operation) waitActive(ctx context.Context, m *machine, unit string) error {
	watch := o.watchUnit(m, unit)
	err := within(ctx, startBudget, "start of "+unit, func(ctx context.Context) error {
		return wait.PollUntilContextCancel(ctx, poll, true, func(ctx context.Context) (bool, error) {
			props, err := unitProperties(ctx, m.runner, unit)
			if err == nil && props["ActiveState"] == "active" {
				return true, nil
			}
			return false, watch(ctx)
		})
	})
	return o.unitError(ctx, m, "wait for "+unit, unit, err)
}

func unitProperties(ctx context.Context, r host.Runner, unit string) (map[string]string, error) {
	out, err := r.Run(ctx, remote.Command{
		Script: "systemctl show --property=ActiveState,SubState,Result,NRestarts " + quote(unit)})
	if err != nil {
		return nil, err
	}
	props := map[string]string{}
	for line := range strings.Lines(string(out.Stdout)) {
		if k, v, ok := strings.Cut(strings.TrimSpace(line), "="); ok {
			props[k] = v
		}
	}
	return props, nil
}

// unitError makes a StepError of what went wrong while waiting for a unit's
// service, with the end of its journal. The journal is fetched on a context of
// its own, because the operation's has often ended by then.
func (o *operation) unitError(ctx context.Context, m *machine, step, unit string, err error) error {
	if err == nil {
		return nil
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), leaveBudget)
	defer cancel()
	journal := host.Journal(ctx, m.runner, unit, journalLines)
	return &StepError{Machine: m.name(), Step: step, Err: err, Unit: unit, Journal: journal,
		Causes: host.Causes(ctx, m.runner, err.Error()+"\n"+journal),
		Next:   journalCommand(m.Host, unit)}
}

func journalCommand(h remote.Host, unit string) string {
	return sshCommand(h, "sudo journalctl --unit "+unit+" --lines 50 --no-pager")
}

// sshCommand is what a person types to run something on a machine.
func sshCommand(h remote.Host, command string) string {
	parts := []string{"ssh"}
	if h.Bastion != nil {
		parts = append(parts, "-J", h.Bastion.User+"@"+h.Bastion.Address)
	}
	if h.Port != 0 && h.Port != 22 {
		parts = append(parts, "-p", strconv.Itoa(h.Port))
	}
	return strings.Join(append(parts, h.User+"@"+h.Address, command), " ")
}

// within runs f with a deadline of its own; when that is what ended it, the
// error says what was waited for and how long.
func within(ctx context.Context, budget time.Duration, what string, f func(context.Context) error) error {
	patience := fmt.Errorf("%s: not within %s", what, budget)
	ctx, cancel := context.WithTimeoutCause(ctx, budget, patience)
	defer cancel()
	err := f(ctx)
	if err != nil && errors.Is(context.Cause(ctx), patience) && !errors.Is(err, patience) {
		return fmt.Errorf("%w: %w", patience, err)
	}
	return err
}
