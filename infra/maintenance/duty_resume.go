package maintenance

import (
	"context"
	"errors"
	"time"

	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/component"
	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/deed"
	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/finding"
	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/fleet"
	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/host"
	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/kube"
	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/patience"
	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/remote"
)

// Resume waits until the restarted machine, reached at h, does everything again that it did before:
// its units are active, its etcd member is healthy and has caught up, its API server is ready, its
// node is Ready and uncordoned.
func (d *Duty) Resume(ctx context.Context, h remote.Host) error {
	if d.Idle() {
		return nil
	}
	d.m = d.fleet.Machine(fleet.Target{Host: h, Node: d.m.Node})
	for _, u := range d.all() {
		if err := d.m.WaitActive(ctx, u); err != nil {
			return err
		}
	}
	if d.had(component.EtcdUnit) {
		if err := d.resumeEtcd(ctx); err != nil {
			return err
		}
	}
	if d.had(component.APIServerUnit) {
		if err := d.resumeAPI(ctx); err != nil {
			return err
		}
	}
	if d.had(component.KubeletUnit) {
		if err := d.resumeNode(ctx); err != nil {
			return err
		}
	}
	if err := deed.ForgetStop(ctx, d.m.Remote); err != nil {
		return d.fail("forget that it was stopped", err)
	}
	return nil
}

func (d *Duty) resumeEtcd(ctx context.Context) error {
	c, err := d.etcd()
	if err != nil {
		return err
	}
	defer c.Close()
	return d.m.WaitMember(ctx, c)
}

func (d *Duty) resumeAPI(ctx context.Context) error {
	c, _, err := d.api(component.ManagerKubeconfig, "")
	if err != nil {
		return err
	}
	defer c.Close()
	return d.m.WaitAPIServer(ctx, c)
}

func (d *Duty) resumeNode(ctx context.Context) error {
	c, node, err := d.kubelet()
	if err != nil {
		return err
	}
	defer c.Close()
	boot, _, err := host.Starts(ctx, d.m.Remote)
	if err != nil {
		return err
	}
	condition := kube.NodeCondition{Name: node, BootID: boot}
	err = fleet.Within(ctx, fleet.NodeBudget, "node", func(ctx context.Context) error {
		if err := c.WaitNodes(ctx, []kube.NodeCondition{condition}, d.m.Watch(component.KubeletUnit)); err != nil {
			return err
		}
		d.m.Say("node: Ready")
		return c.Uncordon(ctx, node)
	})
	return d.m.UnitError(ctx, "wait for the node", component.KubeletUnit, err)
}

// Restore undoes Suspend, Cordon or Leave on a machine that runs, reached at h. An etcd member that
// has left does not join again. Restore does as much as it can, on a context of its own: the
// caller's has often ended. A lost connection and an API server that is not up again yet get
// fleet.RestoreBudget. What could not be undone is in the notes; that units were stopped also stays
// noted on the machine.
func (d *Duty) Restore(ctx context.Context, h remote.Host) {
	if d.Idle() {
		return
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), patience.Of(ctx, d.patience))
	defer cancel()
	d.m = d.fleet.Machine(fleet.Target{Host: h, Node: d.m.Node})
	if units := d.all(); len(units) > 0 && (d.noted || d.Interrupted()) {
		err := again(ctx, fleet.Unreachable, func(ctx context.Context) error { return deed.Start(ctx, d.m.Remote, units...) })
		if err != nil {
			d.note(finding.NotStarted, err)
			return // the node cannot be opened through the machine either
		}
	}
	if !d.uncordon(ctx) || !d.noted && !d.Interrupted() {
		return
	}
	if err := deed.ForgetStop(ctx, d.m.Remote); err != nil {
		d.m.Say("maintenance: the note that it was stopped stays: %v", err)
	}
}

// uncordon opens the node to pods again, if it was cordoned, and reports whether it is open.
func (d *Duty) uncordon(ctx context.Context) bool {
	if !d.cordoned && (!d.Interrupted() || !d.had(component.KubeletUnit)) {
		return true
	}
	err := again(ctx, func(err error) bool { return !kube.Permanent(err) && !pinned(err) }, func(ctx context.Context) error {
		c, node, err := d.kubelet()
		if err != nil {
			return err
		}
		defer c.Close()
		return c.Uncordon(ctx, node)
	})
	if err != nil {
		d.note(finding.NotOpened, err)
		return false
	}
	d.cordoned = false
	return true
}

// pinned reports whether the machine shows another host key than the pinned one, or refuses the
// login: waiting does not help.
func pinned(err error) bool {
	var foreign *remote.HostKeyError
	var refused *remote.AuthError
	return errors.As(err, &foreign) || errors.As(err, &refused)
}

// restorePause is the pause between attempts to restore something.
const restorePause = 2 * time.Second

// again does something until it succeeds, fails for good, or ctx ends. The error is the last one.
func again(ctx context.Context, mayPass func(error) bool, do func(context.Context) error) error {
	for {
		err := do(ctx)
		if err == nil || !mayPass(err) {
			return err
		}
		select {
		case <-ctx.Done():
			return err
		case <-time.After(restorePause):
		}
	}
}
