package rollout

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/url"
	"strconv"
	"strings"

	"golang.org/x/crypto/ssh"

	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/fleet"
	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/parallel"
	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/patience"
	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/remote"
)

// Need is something that a machine must reach before its units can work.
type Need struct {
	To        string   // for people: "etcd"
	Addresses []string // host:port
	Enough    int      // how many of the addresses must answer
}

// CheckReach checks, before anything is changed, whether the machines to be changed reach what
// their units will need. A program that cannot reach it reports that only minutes later, and
// without the cause. A refused connection is fine: packets arrive, and nothing listens yet.
//
// needs returns what a machine needs, nil for nothing.
func (o *Operation) CheckReach(ctx context.Context, needs func(*Machine) *Need) error {
	return fleet.Each(ctx, o.Reachable(), func(ctx context.Context, m *Machine) error {
		if len(m.Changes) == 0 {
			return nil
		}
		n := needs(m)
		if n == nil {
			return nil
		}
		return n.reach(ctx, m.Machine)
	})
}

func (n *Need) reach(ctx context.Context, m *fleet.Machine) error {
	soon, cancel := context.WithTimeout(ctx, patience.Of(ctx, fleet.ReachBudget))
	defer cancel()
	failures := make(chan error, len(n.Addresses))
	for _, address := range n.Addresses {
		go func() {
			failures <- parallel.Safely(soon, "machine "+m.Name(), func() error { return reaches(soon, m, address) })
		}()
	}
	open := 0
	var closed []string
	for range n.Addresses {
		err := <-failures
		if fleet.Unreachable(err) {
			return err
		}
		if err == nil {
			if open++; open >= n.Enough {
				return nil
			}
			continue
		}
		closed = append(closed, err.Error())
	}
	if open >= n.Enough || ctx.Err() != nil {
		return ctx.Err()
	}
	host, port, _ := net.SplitHostPort(n.Addresses[0])
	return &fleet.StepError{Machine: m.Name(), Step: "reach " + n.To,
		Err: fmt.Errorf("%s: something between the machines blocks the port; nothing has been changed", strings.Join(closed, "; ")),
		Next: fmt.Sprintf("let it through in the security groups, the network ACLs and the firewalls of both machines, try it with\n%s\nand apply again",
			m.SSH(fmt.Sprintf("curl --verbose --max-time 5 telnet://%s:%s", host, port)))}
}

// reaches returns nil if the address answers the machine, if only with a refusal.
func reaches(ctx context.Context, m *fleet.Machine, address string) error {
	conn, err := m.Remote.Dial(ctx, "tcp", address)
	var denied *ssh.OpenChannelError
	switch {
	case err == nil:
		return conn.Close()
	case ctx.Err() != nil:
		return fmt.Errorf("%s does not answer within %s", address, fleet.ReachBudget)
	case !errors.As(err, &denied):
		return err
	case denied.Reason != ssh.ConnectionFailed, remote.NothingListens(denied):
		return nil // forwarding is off, so the result is unknown; or nothing listens yet
	}
	return fmt.Errorf("%s cannot be reached (%s)", address, denied.Message)
}

// checkForwarding finds out, before a machine is changed, whether its sshd lets the role's program be asked. Any
// other answer will do: nothing may listen yet.
func (o *Operation) checkForwarding(ctx context.Context, m *Machine) error {
	if o.role.AskedAt == 0 || len(m.Changes) == 0 {
		return nil
	}
	soon, cancel := context.WithTimeout(ctx, patience.Of(ctx, fleet.ReachBudget))
	defer cancel()
	conn, err := m.Remote.Dial(soon, "tcp", net.JoinHostPort("127.0.0.1", strconv.Itoa(o.role.AskedAt)))
	var forwarding *remote.ForwardingError
	switch {
	case err == nil:
		_ = conn.Close()
	case errors.As(err, &forwarding):
		return &fleet.StepError{Machine: m.Name(), Step: "reach its " + o.role.Name + " through SSH", Err: fmt.Errorf("%w; nothing has been changed", err)}
	}
	return ctx.Err()
}

// OneOf is the need for at least one of several URLs; nil if there are none.
func OneOf(what string, urls ...string) *Need {
	n := Need{To: what, Enough: 1}
	for _, text := range urls {
		if u, err := url.Parse(text); err == nil && u.Host != "" {
			n.Addresses = append(n.Addresses, u.Host)
		}
	}
	if len(n.Addresses) == 0 {
		return nil
	}
	return &n
}
