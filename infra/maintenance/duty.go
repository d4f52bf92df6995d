// Package maintenance takes one machine of a cluster down and brings it back: it
// finds out what the machine does, whether the cluster can do without it, lets it
// leave in order, and waits until it does again what it did. Machines of one
// cluster take turns.
//
// It asks the machine itself, and speaks to the cluster with the machine's own
// credentials, so that whoever stops or terminates a machine needs to know
// nothing of roles.
//
// What may not enter: what is wanted of a machine (package rollout), keys of the
// cluster's key store, how a machine is stopped or terminated (package aws), and
// Terraform.
package maintenance

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"k8s.io/client-go/tools/clientcmd"

	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/component"
	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/etcd"
	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/finding"
	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/fleet"
	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/host"
	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/kube"
)

// Duty is what one machine does for its cluster, as found on the machine
// itself: whoever stops or terminates a machine need not know which roles it
// has. A machine on which nothing of a cluster runs has none.
//
// It speaks to the cluster with the machine's own credentials, read into
// memory: an etcd member's, the controller manager's (which may list
// everything), the kubelet's (which may drain its own node).
//
//	d, err := maintenance.Find(ctx, fleet, target)
//	d.Among(find)           // whose API servers are held while etcd's leadership moves
//	d.Suspend(ctx, leaving) // refused, or the cluster does without the machine
//	// stop, change, start
//	d.Resume(ctx, host)     // it does again what it did before
//
// or, before it is terminated, d.Close and d.Leave. The zero value is the duty
// of a machine that has none.
type Duty struct {
	fleet *fleet.Fleet
	m     *fleet.Machine

	units    []string                                      // units of ours that are active
	files    map[string][]byte                             // credentials, by path
	find     func(context.Context) ([]fleet.Target, error) // other controllers, nil when unknown
	cordoned bool
	notes    []finding.Finding
}

// dutyUnits are the units a machine is missed for, in the order they start, and
// the credentials of those that have any.
var dutyUnits = []host.UnitFiles{
	{Unit: component.EtcdUnit, Files: []string{component.EtcdCAPath, component.EtcdServerCert, component.EtcdServerKey}},
	{Unit: component.APIServerUnit, Kubeconfigs: []string{component.ManagerKubeconfig}},
	{Unit: component.ControllerManagerUnit}, {Unit: component.SchedulerUnit},
	{Unit: component.ContainerdUnit},
	{Unit: component.KubeletUnit, Kubeconfigs: []string{component.KubeletKubeconfig}},
	{Unit: component.KubeProxyUnit}, {Unit: component.HAProxyUnit},
}

// Find finds out what a machine does. Of t it needs how to reach the machine,
// its name and its private address.
func Find(ctx context.Context, f *fleet.Fleet, t fleet.Target) (*Duty, error) {
	d := &Duty{fleet: f, m: f.Machine(t)}
	ctx, cancel := context.WithTimeoutCause(ctx, fleet.ObserveBudget, fmt.Errorf("no answer within %s", fleet.ObserveBudget))
	defer cancel()
	var err error
	if d.units, d.files, err = host.ReadActive(ctx, d.m.Remote, dutyUnits...); err != nil {
		return nil, fmt.Errorf("finding out what runs on %s: %w", t.Node.Name, err)
	}
	return d, nil
}

// Units returns the units of ours that are active.
func (d *Duty) Units() []string { return slices.Clone(d.units) }

// Idle tells that nobody would miss the machine.
func (d *Duty) Idle() bool { return len(d.units) == 0 }

// Notes are what could not be done and does not stand in the way.
func (d *Duty) Notes() []finding.Finding { return slices.Clone(d.notes) }

func (d *Duty) does(unit string) bool { return slices.Contains(d.units, unit) }

func (d *Duty) note(problem finding.Problem, err error) *finding.Finding {
	f := finding.Finding{Subject: d.m.Name(), Kind: finding.Duty, Problem: problem, Cause: err.Error()}
	d.notes = append(d.notes, f)
	d.m.Say("%s", f)
	return &f
}

// etcd connects to the member on the machine.
func (d *Duty) etcd() (*etcd.Client, error) {
	return d.etcdAt(fmt.Sprintf("https://127.0.0.1:%d", component.EtcdClientPort))
}

// etcdAt connects to any member from the machine, as this member.
func (d *Duty) etcdAt(endpoint string) (*etcd.Client, error) {
	return etcd.New(etcd.Access{Endpoint: endpoint, CA: d.files[component.EtcdCAPath],
		Cert: d.files[component.EtcdServerCert], Key: d.files[component.EtcdServerKey], Dial: d.m.Remote.Dial})
}

// api connects to an API server from the machine with one of its kubeconfigs,
// at another endpoint when one is given, and returns whom it connects as.
func (d *Duty) api(kubeconfig, endpoint string) (c *kube.Client, user string, err error) {
	config, err := clientcmd.Load(d.files[kubeconfig])
	if err != nil {
		return nil, "", fmt.Errorf("%s on %s: %w", kubeconfig, d.m.Name(), err)
	}
	at := config.Contexts[config.CurrentContext]
	if at == nil || config.Clusters[at.Cluster] == nil || config.AuthInfos[at.AuthInfo] == nil {
		return nil, "", fmt.Errorf("%s on %s holds no usable context", kubeconfig, d.m.Name())
	}
	cluster, auth := config.Clusters[at.Cluster], config.AuthInfos[at.AuthInfo]
	if endpoint == "" {
		endpoint = cluster.Server
	}
	c, err = kube.New(kube.Access{Endpoint: endpoint, CA: d.files[cluster.CertificateAuthority],
		Cert: d.files[auth.ClientCertificate], Key: d.files[auth.ClientKey], Dial: d.m.Remote.Dial})
	return c, at.AuthInfo, err
}

// kubelet connects to the API server as the machine's kubelet and returns the
// name of its node.
func (d *Duty) kubelet() (*kube.Client, string, error) {
	c, user, err := d.api(component.KubeletKubeconfig, "")
	return c, strings.TrimPrefix(user, "system:node:"), err
}

// Close keeps new pods away from the machine, if it is a node: of several that
// are about to go, all are closed before the first is emptied, lest its pods
// move on to the next. Not reaching the API server is noted, no more.
func (d *Duty) Close(ctx context.Context) { _ = d.close(ctx) }

// close is Close. It returns what it notes, nil when all is well.
func (d *Duty) close(ctx context.Context) *finding.Finding {
	if !d.does(component.KubeletUnit) {
		return nil
	}
	c, node, err := d.kubelet()
	if err == nil {
		defer c.Close()
		err = fleet.Within(ctx, fleet.EvictBudget, "the API server", func(ctx context.Context) error { return c.Cordon(ctx, node) })
	}
	if err != nil {
		return d.note(finding.NotDrained, err)
	}
	d.cordoned = true
	return nil
}

// Suspend readies the machine to be stopped: the other etcd members and API
// servers are healthy, its pods are elsewhere, its API server and etcd member
// have ended in order. It is refused, with a *GuardError and nothing changed,
// when the cluster cannot do without the machine. leaving tells, by name and
// by private address, of machines that will not come back and do not count.
func (d *Duty) Suspend(ctx context.Context, leaving func(string) bool) error {
	if err := d.guard(ctx, false, leaving); err != nil {
		return err
	}
	if noted := d.close(ctx); noted != nil && !d.cordoned {
		return d.fail("drain", errors.New(noted.String()))
	}
	if err := d.drain(ctx); err != nil {
		return err
	}
	if err := d.stop(ctx, component.APIServerUnit); err != nil {
		return err
	}
	d.mention(d.HandOver(ctx, leaving))
	return d.stop(ctx, component.EtcdUnit)
}

// Leave readies the machine to be terminated, after Close: as Suspend, and its
// etcd member leaves the cluster. Its Node object stays: who deletes it is who
// knows whether another machine of that name follows.
func (d *Duty) Leave(ctx context.Context, leaving func(string) bool) error {
	err := d.guard(ctx, true, leaving)
	if err == nil {
		err = d.drain(ctx)
	}
	if err == nil {
		err = d.stop(ctx, component.APIServerUnit)
	}
	if err == nil {
		err = d.leaveEtcd(ctx, leaving)
	}
	if err != nil {
		d.Restore(ctx)
		return err
	}
	return nil
}

// drain evicts the pods of a node that was closed.
func (d *Duty) drain(ctx context.Context) error {
	if !d.cordoned {
		return nil
	}
	c, node, err := d.kubelet()
	if err != nil {
		return d.fail("drain", err)
	}
	defer c.Close()
	d.fleet.Say(node, "maintenance: draining")
	if err := c.Drain(ctx, node, fleet.DefaultDrainTimeout, func(line string) { d.fleet.Say(node, "%s", line) }); err != nil {
		d.uncordon(ctx)
		return &fleet.StepError{Machine: d.m.Name(), Step: "drain", Err: err,
			Next: "kubectl get pods,poddisruptionbudgets --all-namespaces --output wide, and make room for the pods or relax the budget"}
	}
	return nil
}

// stop ends a unit, if it is active.
func (d *Duty) stop(ctx context.Context, unit string) error {
	if !d.does(unit) {
		return nil
	}
	return d.m.Stop(ctx, "maintenance", unit)
}

func (d *Duty) fail(step string, err error) error {
	return &fleet.StepError{Machine: d.m.Name(), Step: step, Err: err}
}
