package machines

import (
	"context"
	"errors"

	"github.com/hashicorp/terraform-plugin-framework/diag"
	"github.com/hashicorp/terraform-plugin-framework/types"

	infraaws "github.com/k8s-from-scratch/terraform-provider-k8s/infra/aws"
	awsmachine "github.com/k8s-from-scratch/terraform-provider-k8s/infra/aws/machine"
	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/fleet"
	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/foreign"
	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/maintenance"
	"github.com/k8s-from-scratch/terraform-provider-k8s/internal/provider/argument"
	"github.com/k8s-from-scratch/terraform-provider-k8s/internal/provider/reference"
	"github.com/k8s-from-scratch/terraform-provider-k8s/internal/provider/tf"
)

// maintained returns the machine as package maintenance changes its power.
func (r *machineResource) maintained(client *infraaws.Client, m machineModel) maintenance.Machine {
	return maintenance.Machine{Name: m.Name.ValueString(), Look: func(ctx context.Context) (maintenance.Sight, error) {
		now, err := awsmachine.Describe(ctx, client, m.ID.ValueString())
		if errors.Is(err, infraaws.ErrNotFound) {
			return maintenance.Sight{}, nil
		}
		return r.sight(client, m, now), err
	}}
}

// sight returns what EC2 says of the machine now. Other machines with API servers and members of etcd are
// looked up by their tags.
func (r *machineResource) sight(client *infraaws.Client, m machineModel, now awsmachine.Machine) maintenance.Sight {
	h := m.host()
	h.PowerState = types.StringValue(reference.Running)
	h.PublicIP, h.PrivateIP = tf.OptionalAddr(now.PublicIP), tf.OptionalAddr(now.PrivateIP)
	h.Address = tf.OptionalAddr(now.Address()).StringValue
	s := maintenance.Sight{At: fleet.Target{Host: h.Remote(r.Session), Node: h.Node()}}
	switch now.State {
	case reference.Running:
		s.Power = maintenance.Running
	case "pending":
		s.Power = maintenance.Starting
	}
	s.Find = func(ctx context.Context) (*maintenance.Duty, error) {
		if err := awsmachine.AwaitBoot(ctx, client, now, r.Session.Connect); err != nil {
			return nil, err
		}
		duty, err := r.Session.Duty(ctx, s.At)
		if err != nil {
			return nil, err
		}
		duty.SetControllers(func(ctx context.Context) ([]fleet.Target, error) {
			return reference.RunningMachines(ctx, r.Session, now.Cluster, infraaws.RoleController, infraaws.RoleEtcd)
		})
		return duty, nil
	}
	return s
}

// depart lets the machine leave its cluster before it is terminated, and warns of what did not succeed. The
// departure is never nil.
func (r *machineResource) depart(ctx context.Context, client *infraaws.Client, m machineModel, next maintenance.Succession, diags *diag.Diagnostics) (*maintenance.Departure, error) {
	name, role := m.Name.ValueString(), infraaws.MachineRole(m.Role.ValueString())
	left, err := maintenance.Depart(ctx, r.Session.Clusters.Turns(m.spec(ctx, diags).Cluster), maintenance.Departing{
		Machine:   r.maintained(client, m),
		PrivateIP: m.PrivateIP.ValueString(),
		Next:      next,
		// The address of a load balancer may be released already. A machine without a host key was never reached, so
		// nothing was installed on it.
		Idle:   role == infraaws.RoleLoadBalancer || m.HostKey.ValueString() == "",
		Member: role == infraaws.RoleController || role == infraaws.RoleEtcd,
		Stop:   "stop the instance " + m.ID.ValueString(),
		Within: func(ctx context.Context) (context.Context, context.CancelFunc) {
			return argument.WithTimeout(ctx, m.Timeouts.Delete, r.Deadlines.Delete, diags)
		},
	})
	if left.Unseen != nil && r.Session.FirstWarning(name) {
		then := "The cluster's other resources remove what is left of it when they are applied."
		if next == maintenance.WithItsData {
			then = "k8s_etcd_cluster starts its member again with the data that the new machine gets."
		}
		diags.AddWarning("Machine "+name+" was terminated without being drained", foreign.Text(left.Unseen.Error())+
			"\n\nWhat ran on it is not known: its pods were not evicted, and its etcd member, if it had one, has not left. "+then)
	}
	for _, note := range left.Notes() {
		diags.AddWarning("Machine "+name+" did not leave its cluster completely", foreign.Text(note.String()))
	}
	return left, err
}

// stays brings a machine back that has left its cluster and was not terminated.
func (m machineModel) stays(ctx context.Context, left *maintenance.Departure, next maintenance.Succession, diags *diag.Diagnostics) {
	undone, failed := left.Undo(ctx)
	if !undone {
		return
	}
	said := "What ran on it was started again, and its node takes pods again."
	if len(failed) > 0 {
		said = "It could not be brought back completely."
		for _, note := range failed {
			said += "\n" + foreign.Text(note.String())
		}
	}
	if next != maintenance.WithItsData {
		said += "\n\nIts etcd member, if it had one, has left the etcd cluster: it joins again when k8s_etcd_cluster is applied."
	}
	diags.AddWarning("Machine "+m.Name.ValueString()+" was not terminated after it had left its cluster", said)
}

// begin waits for the machine's turn if the change stops it. Time limits do not run yet.
func (r *machineResource) begin(ctx context.Context, client *infraaws.Client, m, state machineModel, diags *diag.Diagnostics) (*maintenance.Restart, error) {
	return maintenance.Begin(ctx, r.Session.Clusters.Turns(m.spec(ctx, diags).Cluster), r.maintained(client, m), maintenance.Change{
		Runs:    state.InstanceState.ValueString() == reference.Running,
		Stops:   m.stops(),
		Restart: state.reshapes(m),
		Pauses:  m.pausedNetwork().ValueBool(),
		Resumes: state.pausedNetwork().ValueBool(),
	})
}

// stop prepares the machine to be stopped, by itself or with its cluster.
func (r *machineResource) stop(ctx context.Context, client *infraaws.Client, restart *maintenance.Restart, m machineModel, now awsmachine.Machine, diags *diag.Diagnostics) error {
	if !m.pausedNetwork().ValueBool() {
		return restart.Stop(ctx, r.sight(client, m, now))
	}
	if err := r.pauseCluster(ctx, client, r.Session.Clusters.Turns(m.spec(ctx, diags).Cluster), now); err != nil {
		return err
	}
	return stopBehind(ctx, r.Session, client, now)
}

// warnOfRestart adds a warning for everything that could not be done during the restart.
func (m machineModel) warnOfRestart(restart *maintenance.Restart, diags *diag.Diagnostics) {
	for _, note := range restart.Notes() {
		diags.AddWarning("Not everything succeeded on machine "+m.Name.ValueString(), foreign.Text(note.String()))
	}
}
