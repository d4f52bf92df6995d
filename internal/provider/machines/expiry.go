package machines

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/hashicorp/terraform-plugin-framework/diag"
	"github.com/hashicorp/terraform-plugin-framework/path"
	"github.com/hashicorp/terraform-plugin-framework/types"

	infraaws "github.com/k8s-from-scratch/terraform-provider-k8s/infra/aws"
	awsmachine "github.com/k8s-from-scratch/terraform-provider-k8s/infra/aws/machine"
	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/desired"
	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/expiry"
	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/finding"
	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/foreign"
	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/host"
	"github.com/k8s-from-scratch/terraform-provider-k8s/internal/provider/owned"
	"github.com/k8s-from-scratch/terraform-provider-k8s/internal/provider/reference"
	"github.com/k8s-from-scratch/terraform-provider-k8s/internal/provider/tf"
)

// When machines power themselves off: expires_at of k8s_network.

// expiryKey is the private-state entry that records whether the machine has, or may have, the timer that powers it off. An
// imported machine has no entry until it was looked at, and may have it.
const expiryKey = "expiry"

// expiredKey is the private-state entry with the expires_at that had passed at the last refresh; the zero time if none had.
const expiredKey = "expired"

// expiresAt returns when the machine powers itself off, the zero time if it never does.
func (m machineModel) expiresAt(ctx context.Context, diags *diag.Diagnostics) time.Time {
	network, _ := reference.OfNetwork.Read(ctx, m.Network, diags)
	return reference.Time(network.ExpiresAt)
}

// expire makes the model in the state that of a paused machine if its cluster has expired, for the resources on it as
// well. It returns the time that has passed, and whether the state did not say so before: then a machine that does not run
// is no difference.
func (r *machineResource) expire(ctx context.Context, m *machineModel, diags *diag.Diagnostics) (at time.Time, news bool) {
	network, known := reference.OfNetwork.Read(ctx, m.Network, diags)
	if !known || !network.Expired(r.Session.Now()) {
		return time.Time{}, false
	}
	r.Session.Expire(network.Cluster.ValueString(), m.ID.ValueString(), m.Role.ValueString() == string(infraaws.RoleController))
	news = !m.stops()
	network.Paused = types.BoolValue(true)
	m.Network, m.PowerState = reference.OfNetwork.Value(ctx, network), types.StringValue(reference.Stopped)
	return reference.Time(network.ExpiresAt), news
}

// refuseExpired refuses to start a machine that the refresh has found expired because its network was refreshed a moment
// before the time, or not at all.
func refuseExpired(ctx context.Context, p *owned.Plan[machineModel], network reference.Network) {
	if p.New || p.Request.Private == nil || network.Paused.IsUnknown() || network.Paused.ValueBool() {
		return
	}
	at := tf.ReadPrivate[time.Time](ctx, p.Request.Private, expiredKey, p.Diags)
	if !at.IsZero() && at.Equal(reference.Time(network.ExpiresAt)) {
		p.Diags.AddAttributeError(path.Root("network"), "The cluster has expired",
			fmt.Sprintf("expires_at of k8s_network, %s, has passed, and the network says that the cluster is not paused: it has expired since the network was refreshed. Plan again. "+
				"If the network comes from another state, refresh that one first.", network.ExpiresAt.ValueString()))
	}
}

// withoutPower returns findings but those about whether the instance runs.
func withoutPower(all []finding.Finding) []finding.Finding {
	return slices.DeleteFunc(all, func(f finding.Finding) bool { return f.Kind == finding.Instance })
}

// expiryState is the wanted state of the machine's timer.
func expiryState(at time.Time) desired.State {
	if at.IsZero() {
		return expiry.Never()
	}
	return expiry.State(at)
}

// named is a machine as package host changes it.
type named struct {
	awsmachine.Shell
	name string
}

func (n named) Name() string { return n.name }

// inspectExpiry returns how the timer of a running machine differs from what is wanted. A machine that cannot be asked is
// a warning.
func (r *machineResource) inspectExpiry(ctx context.Context, op *owned.Operation, m machineModel, found awsmachine.Machine) []finding.Finding {
	at, has, diags := m.expiresAt(ctx, op.Diags), owned.Kept[*bool](ctx, op, expiryKey), op.Diags
	if at.IsZero() && has != nil && !*has || found.State != reference.Running || m.stops() || r.Session.WarnOfUnknownSSH(diags) {
		return nil
	}
	name, want := m.Name.ValueString(), expiryState(at)
	on := named{r.Session.Connect(found, []string{found.HostKey}), name}
	seen, err := host.Observe(ctx, on, want, host.Record{})
	if err != nil {
		if r.Session.FirstWarning(name) {
			diags.AddWarning("Whether machine "+name+" powers itself off at its expires_at is not known", foreign.Text(err.Error()))
		}
		return nil
	}
	differs := host.Findings(host.Diff(want, seen, host.Record{}))
	if has == nil {
		op.Keep(ctx, expiryKey, !at.IsZero() || len(differs) > 0)
	}
	return finding.About(name, differs)
}

// inTime refuses work after a machine's time: its timer would not fire any more.
func (r *machineResource) inTime(at time.Time) error {
	if at.IsZero() || r.Session.Now().Before(at) {
		return nil
	}
	return fmt.Errorf("expires_at of k8s_network, %s, has passed since the plan: plan again", at.UTC().Format(time.RFC3339))
}

// setExpiry gives a running machine the timer that powers it off, or takes it away.
func (r *machineResource) setExpiry(ctx context.Context, made awsmachine.Machine, at time.Time) error {
	want, on := expiryState(at), named{r.Session.Connect(made, []string{made.HostKey}), made.Name}
	if err := r.inTime(at); err != nil {
		return err
	}
	seen, err := host.Observe(ctx, on, want, host.Record{})
	if err == nil {
		_, err = host.Apply(ctx, on, want, host.Diff(want, seen, host.Record{}), host.Record{}, host.Options{})
	}
	if err != nil {
		return fmt.Errorf("machine %s (%s): set when it powers itself off: %w", made.Name, made.ID, err)
	}
	return nil
}

// warnOfExpiry is setExpiry for a new machine, which is ready without the timer: the next refresh shows that it lacks it.
func (r *machineResource) warnOfExpiry(ctx context.Context, made awsmachine.Machine, at time.Time, diags *diag.Diagnostics) {
	if err := r.setExpiry(ctx, made, at); err != nil {
		diags.AddWarning("Whether machine "+made.Name+" powers itself off at its expires_at is not known", foreign.Text(err.Error())+"\n\nThe next plan shows whether anything is missing, and its apply repairs it.")
	}
}

// bootCommands joins what a new machine does early in its first boot.
func bootCommands(at time.Time, stage string) string {
	if at.IsZero() {
		return stage
	}
	return strings.TrimSpace(expiry.BootCommand(at) + "\n" + stage)
}
