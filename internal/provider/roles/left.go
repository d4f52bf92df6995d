package roles

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/hashicorp/terraform-plugin-framework/diag"

	infraaws "github.com/k8s-from-scratch/terraform-provider-k8s/infra/aws"
	awsmachine "github.com/k8s-from-scratch/terraform-provider-k8s/infra/aws/machine"
	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/rollout"
	"github.com/k8s-from-scratch/terraform-provider-k8s/internal/provider/session"
)

// Machines that could not be reached when a role was removed from them.

// forgetTerminated removes from what is left over the machines that EC2 says are gone for good:
// nothing has to be removed from them. If EC2 cannot be asked, all stay. Those of another account or
// region than the provider's stay too: EC2 does not find them here. Where a machine is, is recorded
// when it is seen here for the first time.
func forgetTerminated(ctx context.Context, d *session.Session, rec *roleRecord) {
	places := map[string]place{}
	for name, l := range rec.Record.Left {
		if l.Target.Node.InstanceID == "" {
			continue
		}
		if at, known := rec.Places[l.Target.Node.InstanceID]; known {
			places[l.Target.Node.InstanceID] = at
		}
		client, err := d.AWS(ctx)
		if err != nil {
			return
		}
		account, _, err := d.Identity(ctx, client)
		if err != nil {
			return
		}
		here := place{account, client.Region}
		if cmp.Or(places[l.Target.Node.InstanceID], here) != here {
			continue
		}
		switch _, err := awsmachine.Describe(ctx, client, l.Target.Node.InstanceID); {
		case errors.Is(err, infraaws.ErrNotFound):
			delete(rec.Record.Left, name)
			delete(places, l.Target.Node.InstanceID)
		case err == nil:
			places[l.Target.Node.InstanceID] = here
		}
	}
	rec.Places = places
}

// warnOfLeft warns of machines that have left a role and could not be reached. A later apply
// removes the role from them.
func (r *roleResource[M, S]) warnOfLeft(left map[string]rollout.Leftover, diags *diag.Diagnostics) {
	for _, name := range slices.Sorted(maps.Keys(left)) {
		diags.AddWarning(fmt.Sprintf("Machine %s still has parts of the %s", name, r.kind.title),
			fmt.Sprintf("It has left the %s, but it cannot be reached, so %s may still run there.\n\n"+
				"A plan looks for it each time, and once it answers, the next apply removes everything from it. If it is an EC2 instance that is terminated meanwhile, this warning ends by itself.",
				r.kind.title, units(left[name])))
	}
}

// warnOfAbandoned warns of machines that could not be reached when their role was destroyed. No
// state records them.
func (r *roleResource[M, S]) warnOfAbandoned(left map[string]rollout.Leftover, diags *diag.Diagnostics) {
	for _, name := range slices.Sorted(maps.Keys(left)) {
		l := left[name]
		diags.AddWarning(fmt.Sprintf("Machine %s still has parts of the destroyed %s", name, r.kind.title),
			fmt.Sprintf("It could not be reached, so %s may still run there, and its files and data are on its disk. If the machine is destroyed too, nothing is left to do.\n\n"+
				"If it comes back and is to be kept, stop the units there:\n%s", units(l), l.Target.SSH("sudo systemctl disable --now "+strings.Join(unitList(l), " "))))
	}
}

// warnOfKept warns of machines from which a destroyed role was not removed, because they belong to
// another resource now.
func (r *roleResource[M, S]) warnOfKept(kept []string, diags *diag.Diagnostics) {
	if len(kept) == 0 {
		return
	}
	diags.AddWarning(fmt.Sprintf("The destroyed %s was not removed from %s", r.kind.title, strings.Join(kept, ", ")),
		fmt.Sprintf("Another k8s_%s has been applied there since. Either it replaces this resource with create_before_destroy, or the hosts were moved to it. Destroying the other resource "+
			"removes everything.", r.kind.name))
}

func unitList(l rollout.Leftover) []string {
	var out []string
	for _, u := range l.State.Units {
		out = append(out, u.Name)
	}
	return out
}

func units(l rollout.Leftover) string {
	if len(l.State.Units) == 0 {
		return "its programs"
	}
	return strings.Join(unitList(l), ", ")
}
