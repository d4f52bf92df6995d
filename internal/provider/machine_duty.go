package provider

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/hashicorp/terraform-plugin-framework/diag"
	"github.com/hashicorp/terraform-plugin-framework/types"

	infraaws "github.com/k8s-from-scratch/terraform-provider-k8s/infra/aws"
	awsmachine "github.com/k8s-from-scratch/terraform-provider-k8s/infra/aws/machine"
	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/fleet"
	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/maintenance"
	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/remote"
	"github.com/k8s-from-scratch/terraform-provider-k8s/internal/provider/tf"
)

// findDutyFunc finds out what a machine does for its cluster.
type findDutyFunc func(context.Context, fleet.Target) (*maintenance.Duty, error)

// targetAt returns the machine as a target, at the addresses that EC2 reports now, for as long as
// it runs.
func (m machineModel) targetAt(d *providerData, now awsmachine.Machine) fleet.Target {
	h := m.host()
	h.PowerState = types.StringValue(running)
	h.PublicIP, h.PrivateIP = tf.OptionalAddr(now.PublicIP), tf.OptionalAddr(now.PrivateIP)
	h.Address = tf.OptionalAddr(now.Address()).StringValue
	return fleet.Target{Host: h.remote(d), Node: h.node()}
}

// duty waits until the machine has booted and finds out what it does for its cluster. Other
// machines with API servers and members of etcd are looked up by their tags.
func (r *machineResource) duty(ctx context.Context, client *infraaws.Client, m machineModel, now awsmachine.Machine) (*maintenance.Duty, error) {
	if err := awsmachine.AwaitBoot(ctx, client, now, r.data.connect); err != nil {
		return nil, err
	}
	duty, err := r.data.duty(ctx, m.targetAt(r.data, now))
	if err != nil {
		return nil, err
	}
	duty.SetControllers(func(ctx context.Context) ([]fleet.Target, error) {
		return r.data.runningMachines(ctx, now.Cluster, infraaws.RoleController, infraaws.RoleEtcd)
	})
	return duty, nil
}

// runningMachines returns the running machines of a cluster with one of the roles, which it finds by their
// tags.
func (d *providerData) runningMachines(ctx context.Context, cluster string, roles ...infraaws.Role) ([]fleet.Target, error) {
	client, err := d.aws(ctx)
	if err != nil {
		return nil, err
	}
	machines, err := awsmachine.FindRunning(ctx, client, cluster, roles...)
	if err != nil {
		return nil, err
	}
	var out []fleet.Target
	for _, m := range machines {
		host := hostOfMachine(ctx, m)
		out = append(out, fleet.Target{Host: host.remote(d), Node: host.node()})
	}
	return out, nil
}

// leaveCluster lets a machine that is about to be terminated leave its cluster gracefully, if
// anything of the cluster runs on it. A machine that does not answer is terminated anyway, since it
// may be broken. If the next machine has its data, its etcd member stays in the cluster: the next machine
// starts it again. The departure is never nil.
func (r *machineResource) leaveCluster(ctx context.Context, client *infraaws.Client, m machineModel, next succession, diags *diag.Diagnostics) (*departure, error) {
	left := &departure{r: r, model: m, done: func() {}, next: next}
	turns := r.data.clusters.Turns(m.spec(ctx, diags).Cluster)
	turns.Leave(m.Name.ValueString(), m.PrivateIP.ValueString())
	if m.Role.ValueString() == string(infraaws.RoleLoadBalancer) {
		return left, nil // it has nothing to leave, and its address may be released already
	}
	now, err := awsmachine.Describe(ctx, client, m.ID.ValueString())
	if err != nil || now.State != running {
		return left, nil //nolint:nilerr // the termination reports it
	}
	duty, err := r.duty(ctx, client, m, now)
	if answered(err) { // systemd may have been busy
		select {
		case <-ctx.Done():
		case <-time.After(askAgain):
		}
		duty, err = r.duty(ctx, client, m, now)
	}
	if role := infraaws.Role(m.Role.ValueString()); answered(err) && (role == infraaws.RoleController || role == infraaws.RoleEtcd) {
		return left, fmt.Errorf("not terminated: it answers, but does not say what runs on it, and an etcd member that is terminated before it leaves may cost the cluster its quorum: %w\n"+
			"next: repair or reboot %s and apply again; if it is beyond repair, stop the instance %s, since a stopped one is terminated without being asked", err, m.Name.ValueString(), m.ID.ValueString())
	}
	if err != nil {
		if r.data.firstWarning(m.Name.ValueString()) {
			then := "The cluster's other resources remove what is left of it when they are applied."
			if next == withItsData {
				then = "k8s_etcd_cluster starts its member again with the data that the new machine gets."
			}
			diags.AddWarning("Machine "+m.Name.ValueString()+" was terminated without being drained", remote.Redact(err.Error())+
				"\n\nWhat ran on it is not known: its pods were not evicted, and its etcd member, if it had one, has not left. "+then)
		}
		return left, nil
	}
	if duty.Idle() {
		return left, nil
	}
	duty.Cordon(ctx)
	if left.done, err = turns.Take(ctx); err == nil {
		err = r.leave(ctx, duty, turns, m, next, diags)
	} else {
		duty.Restore(ctx, m.targetAt(r.data, now).Host)
	}
	for _, note := range duty.Notes() {
		diags.AddWarning("Machine "+m.Name.ValueString()+" did not leave its cluster completely", remote.Redact(note.String()))
	}
	if err == nil {
		left.duty, left.now = duty, now
	}
	return left, err
}

// departure is what a machine has done to leave its cluster.
type departure struct {
	r     *machineResource
	model machineModel
	done  func()             // ends the machine's turn
	duty  *maintenance.Duty  // nil unless it has left
	now   awsmachine.Machine // as it was then
	next  succession
}

// undo brings the machine back after its termination has failed, unless EC2 says that it does not
// run any more.
func (l *departure) undo(ctx context.Context, client *infraaws.Client, diags *diag.Diagnostics) {
	if l.duty == nil {
		return
	}
	looking, cancel := context.WithTimeout(context.WithoutCancel(ctx), finalReadTimeout)
	defer cancel()
	now, err := awsmachine.Describe(looking, client, l.now.ID)
	if errors.Is(err, infraaws.ErrNotFound) || err == nil && now.State != running {
		return
	}
	if err != nil {
		now = l.now
	}
	known := len(l.duty.Notes())
	l.duty.Restore(ctx, l.model.targetAt(l.r.data, now).Host)
	said := "What ran on it was started again, and its node takes pods again."
	if notes := l.duty.Notes()[known:]; len(notes) > 0 {
		said = "It could not be brought back completely."
		for _, note := range notes {
			said += "\n" + remote.Redact(note.String())
		}
	}
	if l.next != withItsData {
		said += "\n\nIts etcd member, if it had one, has left the etcd cluster: it joins again when k8s_etcd_cluster is applied."
	}
	diags.AddWarning("Machine "+l.model.Name.ValueString()+" was not terminated after it had left its cluster", said)
}

// askAgain is the pause before a machine that did not say what runs on it is asked once more.
const askAgain = 2 * time.Second

// answered reports whether the machine was reached and the command failed on it.
func answered(err error) bool {
	var failed *remote.ExitError
	return errors.As(err, &failed)
}

func (r *machineResource) leave(ctx context.Context, duty *maintenance.Duty, turns *maintenance.Turns, m machineModel, next succession, diags *diag.Diagnostics) error {
	ctx, cancel := tf.WithTimeout(ctx, m.Timeouts.Delete, machineDeadlines.Delete, diags)
	defer cancel()
	if next == withItsData {
		return duty.StepAside(ctx, turns.Leaving)
	}
	return duty.Leave(ctx, turns.Leaving, next == withoutItsData)
}

// machineRestart is the stop and start of one machine.
type machineRestart struct {
	r     *machineResource
	model machineModel
	turns *maintenance.Turns
	done  func()            // ends the machine's turn
	duty  *maintenance.Duty // nil until what the machine does is known

	suspended bool // the machine has been prepared to be stopped, and the others run on
	paused    bool // the machine was stopped together with its cluster
}

// begin waits for the machine's turn if the change stops it. Time limits do not run yet. A machine
// that is stopped already does not wait for its turn; if it is to run, the others wait for it. A
// whole cluster that is paused takes one turn, see pauseCluster.
func (r *machineResource) begin(ctx context.Context, m, state machineModel, diags *diag.Diagnostics) (*machineRestart, error) {
	s := &machineRestart{r: r, model: m, done: func() {}, turns: r.data.clusters.Turns(m.spec(ctx, diags).Cluster), paused: state.pausedNetwork().ValueBool()}
	var err error
	switch {
	case m.stops() && (state.InstanceState.ValueString() != running || m.pausedNetwork().ValueBool()):
	case state.InstanceState.ValueString() != running:
		s.done = s.turns.Start(m.Name.ValueString())
	case m.stops(), state.reshapes(m):
		s.done, err = s.turns.Take(ctx)
	}
	return s, err
}

// stop prepares the machine to be stopped.
func (s *machineRestart) stop(ctx context.Context, client *infraaws.Client, now awsmachine.Machine) error {
	if s.model.pausedNetwork().ValueBool() {
		if err := s.pauseCluster(ctx, client, now); err != nil {
			return err
		}
		return s.r.data.stopBehind(ctx, client, now)
	}
	duty, err := s.r.duty(ctx, client, s.model, now)
	if err != nil {
		return fmt.Errorf("not stopped, since what runs on it is not known: %w", err)
	}
	s.duty = duty
	if err := duty.Suspend(ctx, s.turns.Leaving); err != nil {
		return err
	}
	s.suspended = true
	return nil
}

// resume waits until the started machine is healthy again. A machine that was found stopped does
// again what an interrupted change has noted on it; there is nothing to wait for on one that
// somebody has stopped. Machines of a cluster that was paused do not wait: what they need of one
// another, and new certificates, come with the roles.
func (s *machineRestart) resume(ctx context.Context, client *infraaws.Client, now awsmachine.Machine) error {
	if s.paused {
		return nil
	}
	if s.duty == nil {
		duty, err := s.r.duty(ctx, client, s.model, now)
		if err != nil {
			return fmt.Errorf("started, but what it was stopped from is not known: %w", err)
		}
		if !duty.Interrupted() {
			return nil
		}
		s.duty = duty
	}
	return s.duty.Resume(ctx, s.model.targetAt(s.r.data, now).Host)
}

// abandon undoes stop if the machine runs: it was not stopped after all, or it was started again.
func (s *machineRestart) abandon(ctx context.Context, client *infraaws.Client) {
	if !s.suspended {
		return // Suspend itself has undone what it did
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), finalReadTimeout)
	defer cancel()
	now, err := awsmachine.Describe(ctx, client, s.model.ID.ValueString())
	for err == nil && now.State == "pending" && ctx.Err() == nil {
		time.Sleep(askAgain)
		now, err = awsmachine.Describe(ctx, client, s.model.ID.ValueString())
	}
	if err == nil && now.State == running {
		s.duty.Restore(ctx, s.model.targetAt(s.r.data, now).Host)
	}
}

// warn adds a warning for everything that could not be done during the restart.
func (s *machineRestart) warn(diags *diag.Diagnostics) {
	if s.duty == nil {
		return
	}
	for _, note := range slices.Compact(s.duty.Notes()) {
		diags.AddWarning("Not everything succeeded on machine "+s.model.Name.ValueString(), remote.Redact(note.String()))
	}
}
