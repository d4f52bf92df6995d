package awstest

import (
	"context"
	"testing"
	"time"

	infraaws "github.com/k8s-from-scratch/terraform-provider-k8s/infra/aws"
	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/aws/machine"
	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/remote"
	"github.com/k8s-from-scratch/terraform-provider-k8s/internal/e2e/account"
)

// machines are the account's machines, reached by processes that can be killed.
type machines struct{ *account.Machines }

func (a lab) newMachines(t *testing.T, client *infraaws.Client) machines {
	t.Helper()
	return machines{a.NewMachines(t, client)}
}

// on returns the connection of a process that uses w.
func (m machines) on(w *wire) machine.Connect {
	return func(host machine.Machine, hostKeys []string) machine.Shell {
		return &mortal{m.Connect(host, hostKeys), w}
	}
}

// mortal is a shell of a process that can be killed.
type mortal struct {
	machine.Shell
	wire *wire
}

// Run counts as a call on the wire, so that tests can kill the process at it.
func (s *mortal) Run(ctx context.Context, cmd remote.Command) (remote.Output, error) {
	number, dead := s.wire.note("ssh")
	if dead && (number != s.wire.dieAt || !s.wire.arrives) {
		return remote.Output{}, errKilled
	}
	out, err := s.Shell.Run(ctx, cmd)
	if dead {
		s.wire.cancel()
		return remote.Output{}, errKilled
	}
	return out, err
}

// deaf is a machine that never answers.
type deaf struct{}

func (deaf) WaitReady(ctx context.Context, _ time.Duration) error {
	<-ctx.Done()
	return ctx.Err()
}

func (deaf) Run(ctx context.Context, _ remote.Command) (remote.Output, error) {
	<-ctx.Done()
	return remote.Output{}, ctx.Err()
}
