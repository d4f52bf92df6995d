package workerpool

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/fleet"
	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/kube"
	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/parallel"
)

// successorsAnswer fails unless the machines that get the names of others can be reached: until then the others
// are left as they are.
func (o *operation) successorsAnswer(ctx context.Context, superseded []fleet.Target) error {
	return fleet.Each(ctx, superseded, func(ctx context.Context, t fleet.Target) error {
		ctx, cancel := fleet.Observing(ctx)
		defer cancel()
		if err := o.ByName(t.Name()).Remote.Ping(ctx); err != nil {
			return &fleet.StepError{Machine: t.Name(), Step: fmt.Sprintf("replace the machine at %s, on which nothing has been changed", t.Host.Address), Err: err}
		}
		return nil
	})
}

// removeNodes removes nodes that are no longer wanted, or whose names other machines get: it drains them if
// their kubelet runs, deletes their Node objects and removes the role from their machines.
func (o *operation) removeNodes(ctx context.Context, leavers []fleet.Target) error {
	leavers = o.Own(ctx, leavers) // another pool may have taken one over by now
	if len(leavers) == 0 {
		return nil
	}
	nodes, err := o.nodes(ctx)
	if err != nil {
		return err
	}
	taken, others := o.taken(leavers, nodes), slices.ContainsFunc(nodes, func(n kube.Node) bool { return !isOne(leavers, n) && takesPods(n) })
	nodes = slices.DeleteFunc(nodes, func(n kube.Node) bool { return slices.Contains(taken, n.Name) })
	reasons := o.withoutKubelet(ctx, leavers, nodes)
	for _, n := range nodes {
		// The machine that gets its name is no node before it has left.
		if !others && o.ByName(n.Name) != nil && reasons[n.Name] == nil {
			reasons[n.Name] = errors.New("there is no other node to which they could go")
		}
	}
	// All are cordoned before the first is drained, so that pods do not move from one to the next.
	for _, n := range nodes {
		if isOne(leavers, n) {
			if err := o.api.Cordon(ctx, n.Name); err != nil {
				return err
			}
		}
	}
	group, evicting := parallel.WithContext(ctx)
	for name, why := range reasons {
		o.Fleet.Say(name, "worker: evicting its pods without waiting for their end: %v", why)
		// No kubelet ends these pods; what matters is that their replacements start elsewhere.
		group.Go(func() error { _ = o.api.Drain(evicting, name, fleet.EvictBudget, nil); return nil })
	}
	_ = group.Wait()
	for _, t := range leavers {
		known := slices.ContainsFunc(nodes, func(n kube.Node) bool { return n.Name == t.Node.Name })
		if !known || reasons[t.Node.Name] != nil {
			continue
		}
		// A machine that another pool has claimed meanwhile stays as it is, see below.
		ours := func() bool { return len(o.Own(ctx, []fleet.Target{t})) > 0 }
		if !ours() {
			continue
		}
		if err := o.drain(ctx, t.Node.Name); err != nil && ours() {
			return &fleet.StepError{Machine: t.Node.Name, Step: "drain before it leaves", Err: err}
		}
	}
	// The kubelet stops first: while it runs it would register its node again.
	if err := o.RemoveTargets(ctx, leavers); err != nil {
		return err
	}
	// Another pool may have claimed one since, which was kept, or was empty and registers its node again.
	own := o.Own(ctx, leavers)
	var uncordoned []error
	for _, n := range nodes {
		if isOne(leavers, n) && !isOne(own, n) {
			uncordoned = append(uncordoned, o.api.Uncordon(ctx, n.Name))
		}
	}
	return errors.Join(append(uncordoned, o.deleteNodes(ctx, fleet.Except(own, taken)))...)
}

func isOne(targets []fleet.Target, n kube.Node) bool {
	return slices.ContainsFunc(targets, func(t fleet.Target) bool { return t.Name() == n.Name })
}

// taken returns the names of leavers whose Node objects are those of other machines: an apply that stopped
// halfway has installed these.
func (o *operation) taken(leavers []fleet.Target, nodes []kube.Node) []string {
	var out []string
	for _, t := range leavers {
		i := slices.IndexFunc(nodes, func(n kube.Node) bool { return n.Name == t.Name() })
		if i >= 0 && o.ByName(t.Name()) != nil && nodes[i].InternalIP != t.Node.PrivateIP.String() {
			out = append(out, t.Name())
		}
	}
	return out
}

// withoutKubelet returns the nodes without a kubelet that could end pods, and why: the node is not
// ready, or its machine does not answer or another one answers, which the API server may not have noticed yet.
func (o *operation) withoutKubelet(ctx context.Context, targets []fleet.Target, nodes []kube.Node) map[string]error {
	return fleet.EachAll(ctx, o.Fleet.Machines(targets), func(ctx context.Context, m *fleet.Machine) error {
		i := slices.IndexFunc(nodes, func(n kube.Node) bool { return n.Name == m.Name() })
		if i < 0 {
			return nil
		}
		if !nodes[i].Ready {
			return fmt.Errorf("its node is not ready: %s", nodes[i].Reason)
		}
		if err := m.Remote.Ping(ctx); fleet.Unreachable(err) || fleet.Replaced(err) {
			return err
		}
		return nil
	})
}

func (o *operation) deleteNodes(ctx context.Context, targets []fleet.Target) error {
	group, ctx := parallel.WithContext(ctx)
	group.SetLimit(fleet.ParallelMachines)
	for _, t := range targets {
		group.Go(func() error { return o.api.DeleteNode(ctx, t.Node.Name) })
	}
	return group.Wait()
}
