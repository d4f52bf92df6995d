// Package maintenance takes one machine of a cluster down and brings it back. It finds out what the
// machine does and whether the cluster can do without it. It makes the machine leave gracefully,
// and later waits until the machine does the same again. The machines of one cluster take turns.
// Pause makes all of them ready for being stopped together.
//
// It asks the machine itself and uses the machine's own credentials, so its caller needs to know
// nothing of roles.
//
// What may not enter: the wanted state of a machine (package rollout), keys of the cluster's key
// store, how a machine is stopped or terminated (package machine of AWS), and Terraform.
package maintenance

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"k8s.io/client-go/tools/clientcmd"

	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/component"
	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/deed"
	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/etcd"
	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/finding"
	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/fleet"
	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/host"
	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/kube"
	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/patience"
)

// Duty is what one machine does for its cluster, as found on the machine itself. A machine on which
// nothing of a cluster runs has no duty.
//
// It uses the machine's own credentials, read into memory: an etcd member's, the controller
// manager's (which may list everything), the kubelet's (which may drain its own node).
//
//	d, err := maintenance.Find(ctx, fleet, target)
//	d.SetControllers(find)  // their API servers are held while etcd's leadership moves
//	d.Suspend(ctx, leaving) // an error, or the cluster does without the machine
//	// stop, change, start
//	d.Resume(ctx, host)     // the machine does again what it did before
//	d.Restore(ctx, host)    // or, when it was not stopped after all
//
// Before a machine is terminated, call d.Cordon and d.Leave instead, or d.StepAside if its etcd
// member returns on another machine. The zero value is the duty of
// a machine that does nothing for a cluster.
type Duty struct {
	fleet *fleet.Fleet
	m     *fleet.Machine

	units    []string                                      // units of ours that are active
	before   []string                                      // units that ran before an earlier Suspend or Leave that was interrupted
	files    map[string][]byte                             // credentials, by path
	find     func(context.Context) ([]fleet.Target, error) // other controllers, nil when unknown
	cordoned bool                                          // it was tried to cordon the node
	noted    bool                                          // it was tried to note that units are stopped
	notes    []finding.Finding
	patience time.Duration // of Restore
}

// dutyUnits are the units a cluster depends on, in the order in which they start, with the
// credentials of those that have any.
var dutyUnits = []host.UnitFiles{
	{Unit: component.EtcdUnit, Files: []string{component.EtcdCAPath, component.EtcdServerCert, component.EtcdServerKey}},
	{Unit: component.APIServerUnit, Kubeconfigs: []string{component.ManagerKubeconfig}},
	{Unit: component.ControllerManagerUnit}, {Unit: component.SchedulerUnit},
	{Unit: component.ContainerdUnit},
	{Unit: component.KubeletUnit, Kubeconfigs: []string{component.KubeletKubeconfig}},
	{Unit: component.KubeProxyUnit}, {Unit: component.HAProxyUnit},
}

// Find finds out what a machine does. Of t it needs the host, the node's name and its private
// address.
func Find(ctx context.Context, f *fleet.Fleet, t fleet.Target) (*Duty, error) {
	d := &Duty{fleet: f, m: f.Machine(t), patience: fleet.RestoreBudget}
	ctx, cancel := fleet.Observing(ctx)
	defer cancel()
	var err error
	if d.units, d.before, d.files, err = host.ReadNoted(ctx, d.m.Remote, deed.StopNote, dutyUnits...); err != nil {
		return nil, fmt.Errorf("finding out what runs on %s: %w", t.Node.Name, err)
	}
	return d, nil
}

// Interrupted reports that an earlier Suspend or Leave was neither resumed nor restored: units may
// be stopped, and the node cordoned.
func (d *Duty) Interrupted() bool { return len(d.before) > 0 }

// Units returns the active units of this project.
func (d *Duty) Units() []string { return slices.Clone(d.units) }

// Idle reports that the machine does nothing for a cluster.
func (d *Duty) Idle() bool { return len(d.units)+len(d.before) == 0 }

// Notes returns what failed without stopping the operation.
func (d *Duty) Notes() []finding.Finding { return slices.Clone(d.notes) }

// does reports whether the unit is active.
func (d *Duty) does(unit string) bool { return slices.Contains(d.units, unit) }

// all returns the units that are active or were before an interrupted stop, in the order in which
// they start.
func (d *Duty) all() []string {
	var out []string
	for _, u := range dutyUnits {
		if d.does(u.Unit) || slices.Contains(d.before, u.Unit) {
			out = append(out, u.Unit)
		}
	}
	return out
}

// had reports whether the unit is active or was before an interrupted stop.
func (d *Duty) had(unit string) bool { return slices.Contains(d.all(), unit) }

func (d *Duty) note(problem finding.Problem, err error) {
	f := finding.Finding{Subject: d.m.Name(), Kind: finding.Duty, Problem: problem, Cause: err.Error()}
	d.notes = append(d.notes, f)
	d.m.Say("%s", f)
}

// etcd returns a client of the member on the machine.
func (d *Duty) etcd() (*etcd.Client, error) {
	return d.etcdAt(fmt.Sprintf("https://127.0.0.1:%d", component.EtcdClientPort))
}

// etcdAt returns a client of any member, connected from the machine with its member's credentials.
func (d *Duty) etcdAt(endpoint string) (*etcd.Client, error) {
	return etcd.New(etcd.Access{Endpoint: endpoint, CA: d.files[component.EtcdCAPath],
		Cert: d.files[component.EtcdServerCert], Key: d.files[component.EtcdServerKey], Dial: d.m.Remote.Dial, Timing: d.fleet.Timing})
}

// api returns a client of an API server, connected from the machine with one of its kubeconfigs,
// and the name of that user. endpoint replaces the kubeconfig's unless it is empty.
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
		Cert: d.files[auth.ClientCertificate], Key: d.files[auth.ClientKey], Dial: d.m.Remote.Dial, Timing: d.fleet.Timing})
	return c, at.AuthInfo, err
}

// kubelet returns a client of the API server with the kubelet's credentials, and the name of its
// node.
func (d *Duty) kubelet() (*kube.Client, string, error) {
	c, user, err := d.api(component.KubeletKubeconfig, "")
	return c, strings.TrimPrefix(user, "system:node:"), err
}

// Cordon cordons the machine's node, if it has one. Of several machines that are about to leave,
// all are cordoned before the first is drained, so that pods do not move from one to the next. An
// unreachable API server is no error; it becomes a note, see Notes.
func (d *Duty) Cordon(ctx context.Context) { _ = d.cordon(ctx) }

// cordon is Cordon, and also returns the error that it notes.
func (d *Duty) cordon(ctx context.Context) error {
	if !d.does(component.KubeletUnit) {
		return nil
	}
	c, node, err := d.kubelet()
	if err == nil {
		defer c.Close()
		d.cordoned = true // the node may be cordoned although the answer is an error
		err = fleet.Within(ctx, fleet.EvictBudget, "the API server", func(ctx context.Context) error { return c.Cordon(ctx, node) })
	}
	if err != nil {
		d.note(finding.NotDrained, err)
	}
	return err
}

// Suspend prepares the machine for being stopped: it checks that the other etcd members and API
// servers are healthy, drains the node, and stops the API server and the etcd member gracefully. It
// returns a [*fleet.GuardError], and changes nothing, when the cluster cannot do without the
// machine. After any other error it has restored the machine; what it could not restore is in the
// notes, and on the machine for the next Find. leaving reports, by name or private address, whether
// a machine is about to leave; such machines do not count.
func (d *Duty) Suspend(ctx context.Context, leaving func(string) bool) error {
	return d.orRestore(ctx, d.guard(ctx, restarts, leaving),
		func() error {
			if err := d.cordon(ctx); err != nil {
				return d.fail("drain", fmt.Errorf("its pods were not drained: %w", err))
			}
			return d.drain(ctx)
		},
		func() error { return d.noteStop(ctx) },
		func() error { return d.stop(ctx, component.APIServerUnit) },
		func() error { return d.stopEtcd(ctx, leaving) })
}

// Leave prepares the machine for being terminated, after Cordon. It does what Suspend does, and
// removes the etcd member from the cluster, also one that an interrupted Leave or Suspend has
// stopped. replaced says that another machine follows: then the last etcd member may not leave, since
// the data would be lost. The Node object stays: only the caller knows whether a machine with the
// same name follows.
func (d *Duty) Leave(ctx context.Context, leaving func(string) bool, replaced bool) error {
	how := leaves
	if replaced {
		how = followed
	}
	return d.depart(ctx, how, leaving, d.leaveEtcd)
}

// StepAside prepares the machine for being terminated, after Cordon, when another machine follows
// that gets the volume with its data. It does what Leave does, but the etcd member stays in the
// cluster, stopped, as for a restart. So the checks are those of Suspend: the other voters must be
// a quorum of all voters, until the member is started there.
func (d *Duty) StepAside(ctx context.Context, leaving func(string) bool) error {
	return d.depart(ctx, moves, leaving, d.stopEtcd)
}

// depart ends what the machine does, its etcd member last.
func (d *Duty) depart(ctx context.Context, how going, leaving func(string) bool, endMember func(context.Context, func(string) bool) error) error {
	return d.orRestore(ctx, d.guard(ctx, how, leaving),
		func() error { return d.drain(ctx) },
		func() error { return d.noteStop(ctx) },
		func() error { return d.stop(ctx, component.APIServerUnit) },
		func() error { return endMember(ctx, leaving) })
}

// orRestore takes steps until one fails, and then restores the machine. err is the error of what
// was done before.
func (d *Duty) orRestore(ctx context.Context, err error, steps ...func() error) error {
	for _, step := range steps {
		if err == nil {
			err = step()
		}
	}
	if err != nil {
		d.Restore(ctx, d.m.Host)
	}
	return err
}

// noteStop notes on the machine which units are about to be stopped. If this process is killed or
// the connection is lost, the next process then knows that these units must run.
func (d *Duty) noteStop(ctx context.Context) error {
	if d.Idle() {
		return nil
	}
	d.noted = true
	if err := deed.NoteStop(ctx, d.m.Remote, d.all()...); err != nil {
		return d.fail("note what is to run again", err)
	}
	return nil
}

// drain evicts the pods of a cordoned node.
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
	if err := c.Drain(ctx, node, patience.Of(ctx, fleet.DefaultDrainTimeout), func(line string) { d.fleet.Say(node, "%s", line) }); err != nil {
		return &fleet.StepError{Machine: d.m.Name(), Step: "drain", Err: err,
			Next: "kubectl get pods,poddisruptionbudgets --all-namespaces --output wide, and make room for the pods or relax the budget"}
	}
	return nil
}

// stop stops a unit, if it is active.
func (d *Duty) stop(ctx context.Context, unit string) error {
	if !d.does(unit) {
		return nil
	}
	return d.m.Stop(ctx, "maintenance", unit)
}

func (d *Duty) fail(step string, err error) error {
	return &fleet.StepError{Machine: d.m.Name(), Step: step, Err: err}
}
