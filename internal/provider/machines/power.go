package machines

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/hashicorp/terraform-plugin-framework/diag"
	"github.com/hashicorp/terraform-plugin-framework/path"
	"github.com/hashicorp/terraform-plugin-framework/types"

	infraaws "github.com/k8s-from-scratch/terraform-provider-k8s/infra/aws"
	awsmachine "github.com/k8s-from-scratch/terraform-provider-k8s/infra/aws/machine"
	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/fleet"
	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/maintenance"
	"github.com/k8s-from-scratch/terraform-provider-k8s/internal/provider/reference"
)

// The power state of machines: k8s_machine.power_state, and paused of k8s_network.

// pausedNetwork returns whether the machine's cluster is paused; null means no.
func (m machineModel) pausedNetwork() types.Bool {
	p, _ := m.Network.Attributes()["paused"].(types.Bool)
	return p
}

// stops reports whether the machine is to be stopped.
func (m machineModel) stops() bool { return m.PowerState.ValueString() == reference.Stopped }

// planPower plans the power state and the state of the instance that follows from it.
func (m *machineModel) planPower(config machineModel, network reference.Network, now time.Time, diags *diag.Diagnostics) {
	switch {
	case !config.PowerState.IsNull():
		m.PowerState = config.PowerState
	case m.Network.IsUnknown() || network.Paused.IsUnknown():
		m.PowerState = types.StringUnknown()
	case network.Paused.ValueBool():
		m.PowerState = types.StringValue(reference.Stopped)
	default:
		m.PowerState = types.StringValue(reference.Running)
	}
	m.InstanceState = m.PowerState
	if network.Paused.ValueBool() && m.PowerState.ValueString() == reference.Running {
		why, resume := network.WhyPaused(now)
		diags.AddAttributeError(path.Root("power_state"), "The cluster is paused",
			fmt.Sprintf("%s, which stops every machine of the cluster, so %s cannot run: remove power_state, or resume the cluster (%s).", why, m.Name.ValueString(), resume))
	}
}

// refuseNew refuses a machine that would be created stopped: at its first boot it gets its host key.
func (m machineModel) refuseNew(ctx context.Context, now time.Time, diags *diag.Diagnostics) {
	switch {
	case !m.stops():
	case m.pausedNetwork().ValueBool():
		network, _ := reference.OfNetwork.Read(ctx, m.Network, diags)
		why, resume := network.WhyPaused(now)
		diags.AddAttributeError(path.Root("network"), "The cluster is paused",
			fmt.Sprintf("%s would be created, and %s: resume the cluster first, with %s.", m.Name.ValueString(), why, resume))
	default:
		diags.AddAttributeError(path.Root("power_state"), "A machine is created running",
			fmt.Sprintf("%s would be created, and a machine gets its host key when it runs for the first time. Create it with power_state = \"running\", and stop it then.", m.Name.ValueString()))
	}
}

// pauseCluster makes all machines of the network ready for being stopped, once for all of them.
func (r *machineResource) pauseCluster(ctx context.Context, client *infraaws.Client, turns *maintenance.Turns, now awsmachine.Machine) error {
	return turns.Pause(ctx, func(ctx context.Context) error {
		found, err := awsmachine.FindAll(ctx, client, now.Cluster)
		if err != nil {
			return err
		}
		machines := map[string]awsmachine.Machine{}
		var targets []fleet.Target
		private := false // some have no public address
		for _, m := range found {
			if m.VPCID == now.VPCID && m.State == reference.Running && m.Role != infraaws.RoleLoadBalancer { // it has nothing to end
				host := reference.HostOf(m)
				targets = append(targets, fleet.Target{Host: host.Remote(r.Session), Node: host.Node()})
				machines[m.Name] = m
				private = private || !m.PublicIP.IsValid()
			}
		}
		if b, ok := bastionAmong(r.Session, found, now.VPCID); ok && b.State != reference.Running && len(targets) > 0 {
			return bastionOff("pause the cluster", b, "the pause stops it last, as its other machines are reached through it")
		}
		err = maintenance.Pause(ctx, targets, func(ctx context.Context, t fleet.Target) (*maintenance.Duty, error) {
			if err := awsmachine.AwaitBoot(ctx, client, machines[t.Name()], r.Session.Connect); err != nil {
				return nil, err
			}
			return r.Session.Duty(ctx, t)
		})
		var unknown *fleet.GuardError
		if errors.As(err, &unknown) && private && r.Session.SSH.Bastion == nil && !r.Session.SSH.Tunnels {
			err = fmt.Errorf("%w\n%s has a provider configuration without ssh.bastion. If the others are reached through it, give it theirs, with the bastion's address and host key as text, and apply again", err, now.Name)
		}
		return err
	})
}
