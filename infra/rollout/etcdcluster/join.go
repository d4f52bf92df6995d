package etcdcluster

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"net/url"
	"slices"
	"strconv"
	"strings"

	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/component"
	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/deed"
	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/etcd"
	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/fleet"
	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/rollout"
)

// nodeAt makes a node of a member of which only the peer URL is known.
func nodeAt(name, peerURL string) (component.Node, error) {
	u, err := url.Parse(peerURL)
	if err != nil {
		return component.Node{}, fmt.Errorf("etcd member %s: %w", name, err)
	}
	addr, err := netip.ParseAddr(u.Hostname())
	if err != nil || u.Port() != strconv.Itoa(component.EtcdPeerPort) {
		return component.Node{}, fmt.Errorf("etcd member %s listens for its peers on %s: not an address with port %d",
			name, peerURL, component.EtcdPeerPort)
	}
	return component.Node{Name: name, PrivateIP: addr}, nil
}

// joinedWith lists the members that a new member needs for its first start: exactly those of the
// cluster at that moment, itself included.
func joinedWith(members []etcd.Member, wanted []component.Node) ([]component.Node, error) {
	var out []component.Node
	for _, m := range members {
		if len(m.PeerURLs) == 0 {
			return nil, fmt.Errorf("etcd member %s has no peer address", m.Label())
		}
		n, err := nodeAt(m.Name, m.PeerURLs[0])
		if err != nil {
			return nil, err
		}
		for _, w := range wanted {
			if n.Name == "" && w.PrivateIP == n.PrivateIP {
				n.Name = w.Name
			}
		}
		if n.Name == "" {
			n.Name = m.ID.String()
		}
		out = append(out, n)
	}
	slices.SortFunc(out, func(a, b component.Node) int { return strings.Compare(a.Name, b.Name) })
	return out, nil
}

// join makes m a member. An earlier attempt may have been interrupted at any point.
func (o *operation) join(ctx context.Context, m *rollout.Machine) error {
	others := slices.DeleteFunc(o.Reached(), func(x *fleet.Machine) bool { return x == m.Machine })
	facts := memberFacts{name: m.Name(), peerURL: component.EtcdPeerURL(m.Node)}
	members, err := o.members(ctx, others)
	if err != nil {
		return err
	}
	member, listed := facts.member().In(members)
	origin, err := o.origin(ctx, m)
	if err != nil {
		return err
	}
	if !listed || !hasData(m) || otherMembers(origin, member.ID) {
		// According to the cluster, this machine is not a member or has never started as one. So
		// any data on it belong to an ended membership.
		if err := wipe(ctx, m); err != nil {
			return err
		}
	}
	if !listed {
		if member, err = o.announce(ctx, others, facts.peerURL); err != nil {
			return err
		}
		m.Say("etcd: added as learner %s", member.ID)
		if members, err = o.members(ctx, others); err != nil {
			return err
		}
	}
	spec := o.want.spec()
	if spec.InitialCluster, err = joinedWith(members, spec.Members); err != nil {
		return err
	}
	spec.Existing = true
	if m.Want, err = component.Etcd(spec, m.Node); err != nil {
		return err
	}
	if err := o.SurveyMachine(ctx, m); err != nil {
		return err
	}
	if err := o.ApplyWithin(ctx, m, m.Changes, fleet.EtcdBudget, component.EtcdUnit); err != nil {
		return err
	}
	m.Say("etcd: started, catching up")
	return o.promote(ctx, m.Machine, others, member.ID)
}

// wipe stops etcd and deletes its data and its bootstrap settings. It is called only for a machine
// that is not a member, or whose member has never started.
func wipe(ctx context.Context, m *rollout.Machine) error {
	paths := []string{memberDir}
	for _, f := range m.State.Files {
		if f.Once {
			paths = append(paths, f.Path)
		}
	}
	if err := deed.Wipe(ctx, m.Remote, component.EtcdUnit, paths...); err != nil {
		return &fleet.StepError{Machine: m.Name(), Step: "clear the data of an ended etcd membership", Err: err}
	}
	return nil
}

// announce adds the learner through the first healthy member that accepts it.
func (o *operation) announce(ctx context.Context, others []*fleet.Machine, peerURL string) (etcd.Member, error) {
	var errs []error
	for _, x := range others {
		c, err := o.Access.Member(ctx, x)
		if err == nil {
			err = c.Health(ctx)
		}
		if err != nil {
			errs = append(errs, err)
			continue
		}
		var added etcd.Member
		err = fleet.Within(ctx, fleet.GateBudget, "announcement of etcd member "+peerURL, func(ctx context.Context) error {
			added, err = c.AddLearner(ctx, peerURL)
			return err
		})
		return added, err
	}
	return etcd.Member{}, fmt.Errorf("adding etcd member %s: no healthy member to ask: %w", peerURL, errors.Join(errs...))
}

func (o *operation) promote(ctx context.Context, m *fleet.Machine, others []*fleet.Machine, id etcd.ID) error {
	for _, x := range others {
		c, err := o.Access.Member(ctx, x)
		if err != nil {
			return err
		}
		if c.Health(ctx) != nil {
			continue
		}
		err = fleet.Within(ctx, fleet.EtcdBudget, "promotion of etcd member "+m.Name(), func(ctx context.Context) error {
			return c.Promote(ctx, id, m.Watch(component.EtcdUnit))
		})
		if err == nil {
			m.Say("etcd: promoted to voter")
		}
		return m.UnitError(ctx, "wait until the new etcd member has caught up", component.EtcdUnit, err)
	}
	return fmt.Errorf("promoting etcd member %s: no healthy member to ask", m.Name())
}
