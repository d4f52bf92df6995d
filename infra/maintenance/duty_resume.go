package maintenance

import (
	"context"

	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/component"
	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/deed"
	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/finding"
	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/fleet"
	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/host"
	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/kube"
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
	for _, u := range d.units {
		if err := d.m.WaitActive(ctx, u); err != nil {
			return err
		}
	}
	if d.does(component.EtcdUnit) {
		if err := d.resumeEtcd(ctx); err != nil {
			return err
		}
	}
	if d.does(component.APIServerUnit) {
		if err := d.resumeAPI(ctx); err != nil {
			return err
		}
	}
	if d.does(component.KubeletUnit) {
		return d.resumeNode(ctx)
	}
	return nil
}

func (d *Duty) resumeEtcd(ctx context.Context) error {
	c, err := d.etcd()
	if err != nil {
		return err
	}
	defer c.Close()
	// Only a member that has caught up answers a linearizable read.
	err = fleet.Within(ctx, fleet.EtcdBudget, "etcd member", func(ctx context.Context) error {
		return c.WaitHealthy(ctx, d.m.Watch(component.EtcdUnit))
	})
	if err == nil {
		d.m.Say("etcd: healthy")
	}
	return d.m.UnitError(ctx, "wait for the etcd member", component.EtcdUnit, err)
}

func (d *Duty) resumeAPI(ctx context.Context) error {
	c, _, err := d.api(component.ManagerKubeconfig, "")
	if err != nil {
		return err
	}
	defer c.Close()
	err = fleet.Within(ctx, fleet.APIBudget, "API server", func(ctx context.Context) error {
		return c.WaitReady(ctx, fleet.Poll, d.m.Watch(component.APIServerUnit))
	})
	if err == nil {
		d.m.Say("API server: ready")
	}
	return d.m.UnitError(ctx, "wait for the API server", component.APIServerUnit, err)
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

// Restore undoes Suspend, Cordon or a refused Leave on a machine that was not stopped. It does as
// much as it can, on a context of its own.
func (d *Duty) Restore(ctx context.Context) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), fleet.LeaveBudget)
	defer cancel()
	if len(d.units) > 0 {
		if err := deed.Start(ctx, d.m.Remote, d.units...); err != nil {
			d.note(finding.NotStarted, err)
		}
	}
	d.uncordon(ctx)
}

func (d *Duty) uncordon(ctx context.Context) {
	if !d.cordoned {
		return
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), fleet.LeaveBudget)
	defer cancel()
	c, node, err := d.kubelet()
	if err == nil {
		defer c.Close()
		err = c.Uncordon(ctx, node)
	}
	if err != nil {
		d.note(finding.NotOpened, err)
		return
	}
	d.cordoned = false
}
