package roles

import (
	"context"
	"fmt"
	"strings"

	"github.com/hashicorp/terraform-plugin-framework/diag"
	"github.com/hashicorp/terraform-plugin-framework/path"
	"github.com/hashicorp/terraform-plugin-framework/resource"
	"github.com/hashicorp/terraform-plugin-framework/types"
	"github.com/hashicorp/terraform-plugin-go/tftypes"

	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/fleet"
	"github.com/k8s-from-scratch/terraform-provider-k8s/internal/provider/argument"
	"github.com/k8s-from-scratch/terraform-provider-k8s/internal/provider/reference"
)

// What role resources do while their machines are stopped on purpose: nothing.

// hostPower says which hosts of a role are to run. A host whose power state is not known yet is.
type hostPower struct {
	at      string // the argument with the hosts
	on, off []string
	paused  bool // some are stopped together with their cluster
}

// allOff reports whether no host is to run.
func (p hostPower) allOff() bool { return len(p.off) > 0 && len(p.on) == 0 }

func powerOf(at string, hosts []reference.Host) hostPower {
	p := hostPower{at: at}
	for _, h := range hosts {
		if !h.Off() {
			p.on = append(p.on, h.Name.ValueString())
			continue
		}
		p.off = append(p.off, h.Name.ValueString())
		p.paused = p.paused || h.PowerState.ValueString() == reference.Paused
	}
	return p
}

// attributes is a plan or a state.
type attributes interface {
	GetAttribute(ctx context.Context, p path.Path, target any) diag.Diagnostics
}

// power returns the power of the role's hosts in a plan or a state.
func (r *roleResource[M, S]) power(ctx context.Context, from attributes, diags *diag.Diagnostics) hostPower {
	if _, one := r.kind.attributes["host"]; one {
		var host types.Object
		diags.Append(from.GetAttribute(ctx, path.Root("host"), &host)...)
		if h, known := reference.OfHost.Read(ctx, host, diags); known {
			return powerOf("host", []reference.Host{h})
		}
		return hostPower{at: "host"}
	}
	var hosts types.List
	diags.Append(from.GetAttribute(ctx, path.Root("hosts"), &hosts)...)
	known, all := reference.HostsFrom(ctx, hosts, diags)
	p := powerOf("hosts", known)
	if !all {
		p.on = append(p.on, "") // one that is not known yet
	}
	return p
}

// checkPower refuses a plan with stopped machines: of a role that does not exist yet, of one that
// must run, and with any other change of the role.
func (r *roleResource[M, S]) checkPower(ctx context.Context, req resource.ModifyPlanRequest, p hostPower, diags *diag.Diagnostics) {
	if len(p.off) == 0 {
		return
	}
	at := path.Root(p.at)
	if p.paused && len(p.on) > 0 {
		diags.AddAttributeError(at, "Only some of the machines are paused",
			fmt.Sprintf("%s: stopped together with the cluster, and %s: not. The machines of one %s stop together: give all of them the network that is paused.",
				fleet.List(p.off), fleet.List(p.on), r.kind.title))
		return
	}
	if need := r.kind.needed; need != nil && !p.paused && len(p.on) < need(len(p.on)+len(p.off)) {
		diags.AddAttributeError(at, "The cluster cannot do without these machines",
			fmt.Sprintf("With power_state = \"stopped\" on %s, %d of %d machines of the %s run, and at least %d must. Nothing was stopped.\n\n"+
				"Stop fewer of them, or pause the whole cluster: set paused = true of k8s_network, and no power_state.",
				fleet.List(p.off), len(p.on), len(p.on)+len(p.off), r.kind.title, need(len(p.on)+len(p.off))))
	}
	if req.State.Raw.IsNull() {
		diags.AddAttributeError(at, "The machines are stopped",
			fmt.Sprintf("The %s cannot be installed while %s stopped: resume first.", r.kind.title, isOrAre(p.off)))
		return
	}
	kept := []string{}
	if !p.allOff() {
		kept = []string{p.at} // a stopped machine may leave the others
	}
	argument.RefuseChanges(req, "the "+r.kind.title, isOrAre(p.off), kept, diags)
}

// isOrAre returns names with their verb.
func isOrAre(names []string) string {
	if len(names) == 1 {
		return names[0] + " is"
	}
	return strings.Join(names, ", ") + " are"
}

// keepComputed plans the values of the state for computed attributes that are not known: nothing
// is observed that could change them.
func (r *roleResource[M, S]) keepComputed(ctx context.Context, req resource.ModifyPlanRequest, resp *resource.ModifyPlanResponse) {
	var plan, state map[string]tftypes.Value
	if resp.Plan.Raw.As(&plan) != nil || req.State.Raw.As(&state) != nil {
		return
	}
	for name, a := range req.Plan.Schema.GetAttributes() {
		if a.IsComputed() && !plan[name].IsKnown() {
			plan[name] = state[name]
		}
	}
	resp.Plan.Raw = tftypes.NewValue(resp.Plan.Raw.Type(), plan)
}

// warnOfStopped warns of machines from which a destroyed role could not be removed, once for all
// roles.
func (r *roleResource[M, S]) warnOfStopped(p hostPower, diags *diag.Diagnostics) {
	if r.Session.FirstWarning("destroyed while stopped: " + strings.Join(p.off, ", ")) {
		diags.AddWarning("Nothing was removed from stopped machines",
			fmt.Sprintf("%s stopped, so the programs, files and data of the destroyed %s, and of other destroyed resources, are still on them. If the machines are destroyed too, nothing is left to do.",
				isOrAre(p.off), r.kind.title))
	}
}
