package rollout

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/url"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/crypto/ssh"

	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/component"
	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/etcd"
	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/fleet"
	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/host"
	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/remote"
)

// need is something that a machine must reach before its units can work.
type need struct {
	to        string   // for people: "etcd"
	addresses []string // host:port
	enough    int      // how many of the addresses must answer
}

// checkReach checks, before anything is changed, whether the machines to be changed reach what
// their units will need. A program that cannot reach it reports that only minutes later, and
// without the cause. A refused connection is fine: packets arrive, and nothing listens yet.
func (o *operation) checkReach(ctx context.Context) error {
	if o.role.needs == nil {
		return nil
	}
	return fleet.Each(ctx, o.reachable(), func(ctx context.Context, m *convergence) error {
		if len(m.changes) == 0 {
			return nil
		}
		for _, n := range o.role.needs(o, m) {
			if err := n.reach(ctx, m.Machine); err != nil {
				return err
			}
		}
		return nil
	})
}

func (n need) reach(ctx context.Context, m *fleet.Machine) error {
	soon, cancel := context.WithTimeout(ctx, reachBudget)
	defer cancel()
	failures := make(chan error, len(n.addresses))
	for _, address := range n.addresses {
		go func() { failures <- reaches(soon, m, address) }()
	}
	open := 0
	var closed []string
	for range n.addresses {
		err := <-failures
		if fleet.Unreachable(err) {
			return err
		}
		if err == nil {
			if open++; open >= n.enough {
				return nil
			}
			continue
		}
		closed = append(closed, err.Error())
	}
	if open >= n.enough || ctx.Err() != nil {
		return ctx.Err()
	}
	host, port, _ := net.SplitHostPort(n.addresses[0])
	return &fleet.StepError{Machine: m.Name(), Step: "reach " + n.to,
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
		return fmt.Errorf("%s does not answer within %s", address, reachBudget)
	case !errors.As(err, &denied):
		return err
	case denied.Reason != ssh.ConnectionFailed, remote.NothingListens(denied):
		return nil // forwarding is off, so the result is unknown; or nothing listens yet
	}
	return fmt.Errorf("%s cannot be reached (%s)", address, denied.Message)
}

// needsPeers is what an etcd member needs of the other running members: without a quorum it never
// starts. The guards check stopped members. One that is about to load other packet filter rules, which
// happens before members join, counts as reached: the rules that it still has may shut out a new member.
func needsPeers(o *operation, m *convergence) []need {
	n := need{to: "the other etcd members", enough: etcd.Quorum(len(o.machines)) - 1}
	for _, x := range o.reachable() {
		switch {
		case x == m:
		case changesRules(x):
			n.enough--
		default:
			n.addresses = append(n.addresses, address(x.Node, component.EtcdPeerPort))
		}
	}
	if len(n.addresses) < n.enough || n.enough <= 0 {
		return nil
	}
	return []need{n}
}

// changesRules reports whether the rules of a member's packet filter change.
func changesRules(m *convergence) bool {
	return slices.ContainsFunc(m.changes, func(c host.Change) bool {
		return c.Target == component.EtcdFirewallPath || c.Target == component.EtcdFirewallUnit
	})
}

// needsOneOf is the need for at least one of several URLs.
func needsOneOf(what string, urls ...string) func(*operation, *convergence) []need {
	n := need{to: what, enough: 1}
	for _, text := range urls {
		if u, err := url.Parse(text); err == nil && u.Host != "" {
			n.addresses = append(n.addresses, u.Host)
		}
	}
	return func(*operation, *convergence) []need {
		if len(n.addresses) == 0 {
			return nil
		}
		return []need{n}
	}
}

func address(n component.Node, port int) string {
	return net.JoinHostPort(n.PrivateIP.String(), strconv.Itoa(port))
}
