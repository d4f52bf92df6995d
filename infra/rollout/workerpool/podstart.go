package workerpool

import (
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/component"
	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/fleet"
	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/host"
	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/kube"
	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/patience"
	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/rollout"
)

// A node may be Ready while no pod can start on it: the kubelet asks containerd for a sandbox only
// when it needs one. So a node counts as installed or rolled only when a pod has started there. The
// Node object notes the starts of the units and the programs and files of that moment, so that the
// test is repeated exactly when one of them has changed, also after an interrupted operation.

// nodeRuns identifies the running kernel and units of a worker.
type nodeRuns struct {
	boot string // boot ID of the kernel
	// units identifies the current start of containerd and of the kubelet.
	units string
}

func readRuns(ctx context.Context, m *fleet.Machine) (nodeRuns, error) {
	boot, starts, err := host.Starts(ctx, m.Remote, component.ContainerdUnit, component.KubeletUnit)
	return nodeRuns{boot: boot, units: strings.Join(starts, ".")}, err
}

// proof is the note on a node on which a pod has started: the starts of the units, and the digest
// of all public files and programs.
func (x nodeRuns) proof(m *rollout.Machine) string {
	files, _ := json.Marshal(rollout.FileDigests(m.Want.State)) // a map of strings, written in order
	return fmt.Sprintf("%s:%x", x.units, sha256.Sum256(files))
}

// proves reports whether a node's note is about the current start of the units. It ignores the
// files.
func (x nodeRuns) proves(note string) bool { return strings.HasPrefix(note, x.units+":") }

// findUnproven finds the machines whose kubelet runs and on which no pod is known to have started
// since: an earlier operation failed or was interrupted there, or the machine was rebooted. It also notes
// which nodes are Ready.
func (o *operation) findUnproven(ctx context.Context) error {
	running := slices.DeleteFunc(o.Reachable(), func(m *rollout.Machine) bool { return !m.Running(component.KubeletUnit) })
	if len(running) == 0 {
		return nil
	}
	nodes, err := o.api.Nodes(ctx)
	if err != nil {
		return err
	}
	return fleet.Each(ctx, running, func(ctx context.Context, m *rollout.Machine) error {
		runs, err := readRuns(ctx, m.Machine)
		if err != nil {
			return err
		}
		i := slices.IndexFunc(nodes, func(n kube.Node) bool { return n.Name == m.Name() })
		o.mu.Lock()
		defer o.mu.Unlock()
		o.ready[m.Name()] = i >= 0 && nodes[i].Ready
		o.unproven[m.Name()] = i < 0 || !runs.proves(nodes[i].Proven)
		return nil
	})
}

// proveOthers tests, before any node is taken down, whether pods start on the nodes that do not
// change, where that is not known. Those nodes may already have the change that the others are
// about to get.
func (o *operation) proveOthers(ctx context.Context) error {
	settled := slices.DeleteFunc(o.Reachable(), func(m *rollout.Machine) bool { return !o.unproven[m.Name()] || len(m.Changes) > 0 })
	if len(settled) == 0 {
		return nil
	}
	return fleet.Each(ctx, settled, func(ctx context.Context, m *rollout.Machine) error {
		runs, err := readRuns(ctx, m.Machine)
		if err != nil {
			return err
		}
		return nodeError(ctx, m.Machine, fleet.Within(ctx, fleet.NodeBudget, "node", func(ctx context.Context) error { return o.prove(ctx, m, runs) }))
	})
}

// nodeError is UnitError for the kubelet, unless the error already says more.
func nodeError(ctx context.Context, m *fleet.Machine, err error) error {
	var told *fleet.StepError
	if errors.As(err, &told) {
		return err
	}
	return m.UnitError(ctx, "wait for the node", component.KubeletUnit, err)
}

// prove starts a pod on the machine's node, unless one has started there with the current units,
// programs and files. On a full node it tests and notes nothing.
func (o *operation) prove(ctx context.Context, m *rollout.Machine, runs nodeRuns) error {
	note := runs.proof(m)
	if nodes, err := o.api.Nodes(ctx, m.Name()); err == nil && len(nodes) == 1 && nodes[0].Proven == note {
		return nil
	}
	err := o.api.Try(ctx, kube.Trial{
		// A node that was Ready has had a network. After a change from the bridge it needs another one, and stays
		// Ready for some seconds without.
		Node: m.Name(), Image: o.want.Spec.Containerd.Sandbox(), HostNetwork: o.want.Spec.CNI.Network == component.CNINone && !o.ready[m.Name()],
		Abort: m.Watch(component.KubeletUnit),
		Refused: func(ctx context.Context, err error) {
			m.Say("node: uncordoned early, because an admission webhook may need a pod there: %v", err)
			_ = o.api.Uncordon(ctx, m.Name()) // tried again when the node is Ready
		},
	})
	switch {
	case errors.Is(err, kube.ErrNodeFull): // the next operation tests it
		m.Say("node: not tried: %v", err)
		return nil
	case err != nil:
		return o.unproved(ctx, m.Machine, err)
	}
	m.Say("node: a pod has started")
	return o.api.SetProven(ctx, m.Name(), note)
}

// unproved cordons a node on which no pod starts, and returns the reason.
func (o *operation) unproved(ctx context.Context, m *fleet.Machine, err error) error {
	var pod *kube.PodError
	if !errors.As(err, &pod) {
		return err
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), patience.Of(ctx, fleet.LeaveBudget))
	defer cancel()
	closed := "it is closed to new pods until one starts there"
	if cordonErr := o.api.Cordon(ctx, m.Name()); cordonErr != nil {
		closed = "it could not be closed to new pods: " + cordonErr.Error()
	}
	return &fleet.StepError{Machine: m.Name(), Step: "start a pod", Err: fmt.Errorf("the node is up, and no pod starts there: %w; %s", err, closed),
		Next: "correct what the error names and apply again; for more, see\n" + m.JournalCommand(component.ContainerdUnit)}
}
