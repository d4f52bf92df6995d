package roles

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/hashicorp/terraform-plugin-framework/diag"
	"github.com/hashicorp/terraform-plugin-framework/path"
	"github.com/hashicorp/terraform-plugin-framework/resource"
	"github.com/hashicorp/terraform-plugin-framework/types"

	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/fleet"
	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/remote"
	"github.com/k8s-from-scratch/terraform-provider-k8s/internal/provider/reference"
)

// identities returns the role's hosts in a plan or a state as targets, as far as they are known, without how
// to reach them.
func (r *roleResource[M, S]) identities(ctx context.Context, from attributes, diags *diag.Diagnostics) (out []fleet.Target) {
	var hosts []reference.Host
	for name := range r.kind.attributes {
		switch name {
		case "host":
			var one types.Object
			diags.Append(from.GetAttribute(ctx, path.Root(name), &one)...)
			if h, known := reference.OfHost.Read(ctx, one, diags); known {
				hosts = append(hosts, h)
			}
		case "hosts", "standbys":
			var list types.List
			diags.Append(from.GetAttribute(ctx, path.Root(name), &list)...)
			known, _ := reference.HostsFrom(ctx, list, diags)
			hosts = append(hosts, known...)
		}
	}
	for _, h := range hosts {
		if h.InstanceID.IsUnknown() { // an instance that will be made
			continue
		}
		out = append(out, fleet.Target{Node: h.Node(),
			Host: remote.Host{Address: h.Address.ValueString(), Port: int(h.Port.ValueInt64()), HostKeys: []string{h.HostKey.ValueString()}}})
	}
	return out
}

// checkNamesStay refuses a plan that gives machines of the role other names: what runs on a machine under its
// former name would stay there.
func (r *roleResource[M, S]) checkNamesStay(ctx context.Context, req resource.ModifyPlanRequest, diags *diag.Diagnostics) {
	if req.State.Raw.IsNull() {
		return
	}
	prior, want := r.identities(ctx, req.State, diags), r.identities(ctx, req.Plan, diags)
	renamed := fleet.Renamed(want, prior)
	if len(renamed) == 0 {
		return
	}
	slices.SortFunc(renamed, func(a, b fleet.Rename) int { return strings.Compare(a.From.Name(), b.From.Name()) })
	var moves, named []string
	for _, m := range renamed {
		moves = append(moves, fmt.Sprintf("%s at %s would become %s", m.From.Name(), m.From.Host.Address, m.To.Name()))
		named = append(named, m.From.Name())
	}
	var leaves string
	if gone := withoutMachines(prior, want); len(gone) > 0 {
		leaves = fmt.Sprintf(" The host to remove is the one of the machine that leaves: here %s.", strings.Join(gone, ", "))
	}
	rename := "To rename a machine, remove it in one apply, and add it under its new name in the next one."
	if len(prior) == 1 {
		rename = "The only machine of a role cannot be renamed. If they are two machines with copies of one SSH host key, give one of them a key of its own."
	}
	at := "hosts"
	if _, one := r.kind.attributes["host"]; one {
		at = "host"
	}
	diags.AddAttributeError(path.Root(at), "Machines would get other names",
		fmt.Sprintf("The machines of the %s keep their names, since what runs on them has these names too, and this plan changes them: %s.\n\nNames that are positions in a list do that when a "+
			"machine before the last one is removed. Give each machine its name itself: make the hosts from a map whose keys are the names.%s\n\n%s To continue here, restore the "+
			"present names: %s.",
			r.kind.title, strings.Join(moves, "; "), leaves, rename, strings.Join(named, ", ")))
}

// checkSuccession refuses a plan that destroys a role on machines and gives the machines to another resource:
// Terraform does both at the same time, so the destroy would remove what the new resource installs. A resource that
// only has another address in the configuration leads to such a plan.
func (r *roleResource[M, S]) checkSuccession(ctx context.Context, req resource.ModifyPlanRequest, diags *diag.Diagnostics) {
	if r.Session == nil || diags.HasError() { // a plan that fails changes nothing
		return
	}
	machines := func(from attributes, but []fleet.Target) map[string]string {
		out := map[string]string{}
		for _, t := range r.identities(ctx, from, diags) {
			if t.Node.InstanceID+t.Host.Address != "" && !slices.ContainsFunc(but, t.SamePlace) {
				out[cmp.Or(t.Node.InstanceID, t.Host.Address)] = t.Name()
			}
		}
		return out
	}
	const advice = "If this resource only gets another address in the configuration, add a moved block: then nothing happens on its machines. Otherwise destroy the old resource in a " +
		"separate apply, before the other resource gets the machines."
	if req.Plan.Raw.IsNull() {
		var claim types.String
		diags.Append(req.State.GetAttribute(ctx, path.Root("claim"), &claim)...)
		if taken := r.Session.Successions.Ends(r.kind.name, claim.ValueString(), machines(req.State, nil)); len(taken) > 0 {
			diags.AddError("Machines of a resource that is destroyed", fmt.Sprintf("This plan destroys a k8s_%s, and gives its machines to another resource: %s. Terraform does both at the same time, so the destroy would remove what the other resource "+
				"installs.\n\n%s", r.kind.name, strings.Join(taken, ", "), advice+handOver[r.kind.name]))
		}
		return
	}
	var before []fleet.Target
	if !req.State.Raw.IsNull() {
		before = r.identities(ctx, req.State, diags)
	}
	if taken := r.Session.Successions.Gets(r.kind.name, machines(req.Plan, before)); len(taken) > 0 {
		at := "hosts"
		if _, one := r.kind.attributes["host"]; one {
			at = "host"
		}
		diags.AddAttributeError(path.Root(at), "Machines of a resource that is destroyed", fmt.Sprintf("%s: this plan destroys the k8s_%s that has these machines. Terraform does both at the same time, so the destroy would remove what this resource installs.\n\n%s", strings.Join(taken, ", "), r.kind.name, advice+handOver[r.kind.name]))
	}
}

// handOver is the advice for roles between whose objects machines can move.
var handOver = map[string]string{
	"worker_pool": " Nodes keep running if their hosts move to the other pool first: leave the old one in the configuration with hosts = [], and remove it in a later apply.",
}

// withoutMachines returns the targets of prior whose machines are not in want, for people.
func withoutMachines(prior, want []fleet.Target) []string {
	var out []string
	for _, p := range prior {
		if !slices.ContainsFunc(want, func(t fleet.Target) bool { return fleet.SameMachine(p, t, want, prior) }) {
			out = append(out, fmt.Sprintf("%s (%s)", p.Name(), p.Host.Address))
		}
	}
	return out
}
