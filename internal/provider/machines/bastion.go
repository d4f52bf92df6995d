package machines

import (
	"context"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"time"

	infraaws "github.com/k8s-from-scratch/terraform-provider-k8s/infra/aws"
	awsmachine "github.com/k8s-from-scratch/terraform-provider-k8s/infra/aws/machine"
	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/fleet"
	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/patience"
	"github.com/k8s-from-scratch/terraform-provider-k8s/internal/provider/reference"
	"github.com/k8s-from-scratch/terraform-provider-k8s/internal/provider/session"
)

// A bastion that is a machine of the cluster stops last and starts first: the others are reached
// through it, also by an apply that goes on after an interruption.

// bastionAmong returns which of the machines in a VPC is the provider's bastion. It has the pinned
// host key; its address may have changed while it was stopped.
func bastionAmong(d *session.Session, machines []awsmachine.Machine, vpc string) (awsmachine.Machine, bool) {
	if d.SSH.Bastion == nil {
		return awsmachine.Machine{}, false
	}
	i := slices.IndexFunc(machines, func(m awsmachine.Machine) bool {
		return m.VPCID == vpc && m.HostKey != "" && slices.ContainsFunc(d.SSH.Bastion.HostKeys, func(pinned string) bool {
			return bareKey(pinned) == bareKey(m.HostKey)
		})
	})
	if i < 0 {
		return awsmachine.Machine{}, false
	}
	return machines[i], true
}

// bareKey returns a public key without its comment.
func bareKey(authorized string) string {
	fields := strings.Fields(authorized)
	return strings.Join(fields[:min(len(fields), 2)], " ")
}

// stopBehind stops all other machines of a paused cluster before the bastion stops. Terraform may
// stop it first, and would have to wait for the others for no known time.
func stopBehind(ctx context.Context, d *session.Session, client *infraaws.Client, now awsmachine.Machine) error {
	if _, ok := bastionAmong(d, []awsmachine.Machine{now}, now.VPCID); !ok {
		return nil
	}
	found, err := awsmachine.FindAll(ctx, client, now.Cluster)
	if err != nil {
		return err
	}
	var ids []string
	for _, m := range found {
		if m.VPCID == now.VPCID && m.ID != now.ID && m.State != reference.Stopped && m.State != "stopping" {
			ids = append(ids, m.ID)
		}
	}
	if err := awsmachine.Stop(ctx, client, ids...); err != nil {
		return fmt.Errorf("the bastion %s is not stopped, since the machines behind it do not stop: %w", now.Name, err)
	}
	return nil
}

// waitBehind waits until a machine that was started answers. It starts the bastion of a cluster that was
// paused before. If the bastion has another address since then, nothing may be reached until that is
// configured.
func waitBehind(ctx context.Context, d *session.Session, client *infraaws.Client, made awsmachine.Machine, paused bool) error {
	moved, err := startBastion(ctx, d, client, made, paused)
	if err != nil {
		return err
	}
	if moved == nil {
		return awsmachine.AwaitSSH(ctx, client, made, d.Connect)
	}
	limited, cancel := patience.Within(ctx, movedBudget)
	defer cancel()
	if err := awsmachine.AwaitSSH(limited, client, made, d.Connect); err != nil {
		return fmt.Errorf("%w\n%w", moved, err)
	}
	return nil
}

// movedBudget is several times what a machine takes to boot.
const movedBudget = 3 * time.Minute

// startBastion starts the bastion. moved says that its address is not the configured one. That may be well:
// an address may lead to it that it does not have itself.
func startBastion(ctx context.Context, d *session.Session, client *infraaws.Client, made awsmachine.Machine, paused bool) (moved, err error) {
	if d.SSH.Bastion == nil {
		return nil, nil
	}
	found, err := awsmachine.FindAll(ctx, client, made.Cluster)
	if err != nil {
		return nil, err
	}
	b, ok := bastionAmong(d, found, made.VPCID)
	switch {
	case !ok:
		return nil, nil
	case b.ID == made.ID:
		b = made
	case paused:
		if b, err = awsmachine.Start(ctx, client, b); err != nil {
			return nil, err
		}
	case b.State == "stopped" || b.State == "stopping":
		return nil, bastionOff("wait for "+made.Name, b, "its machines are reached through it")
	}
	at, err := netip.ParseAddr(d.SSH.Bastion.Address)
	if err != nil || at == b.PublicIP || at == b.PrivateIP || !b.Address().IsValid() {
		return nil, nil //nolint:nilerr // a name
	}
	return &fleet.GuardError{Refused: "wait for " + made.Name,
		Reason: fmt.Sprintf("the bastion %s has another address since it was started, %s, and ssh.bastion.address is %s", b.Name, b.Address(), at),
		Advice: "write the present one into ssh.bastion.address, and apply again; with an Elastic IP the address stays"}, nil
}

// bastionOff is the error about a bastion that does not run.
func bastionOff(refused string, b awsmachine.Machine, why string) error {
	return &fleet.GuardError{Refused: refused, Reason: fmt.Sprintf("%s is the bastion of the cluster, and its instance %s is %s", b.Name, b.ID, b.State),
		Advice: "start that instance and apply again: " + why}
}
