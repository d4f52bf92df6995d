package argument

import (
	"fmt"
	"slices"
	"time"

	"github.com/hashicorp/terraform-plugin-framework/diag"
	"github.com/hashicorp/terraform-plugin-framework/path"
	"github.com/hashicorp/terraform-plugin-framework/resource"
	"github.com/hashicorp/terraform-plugin-go/tftypes"
)

// RefuseChanges adds an error to every argument that changes while machines are stopped. Power
// states and the arguments in except may change.
func RefuseChanges(req resource.ModifyPlanRequest, what, who string, except []string, diags *diag.Diagnostics) {
	var plan, state map[string]tftypes.Value
	if req.Plan.Raw.As(&plan) != nil || req.State.Raw.As(&state) != nil {
		return
	}
	for name, a := range req.Plan.Schema.GetAttributes() {
		output := a.IsComputed() && (!a.IsOptional() || !plan[name].IsKnown())
		if output || name == Protection || slices.Contains(except, name) || withoutPower(plan[name]).Equal(withoutPower(state[name])) {
			continue
		}
		diags.AddAttributeError(path.Root(name), "The machines are stopped",
			fmt.Sprintf("%s of %s cannot be changed while %s stopped, since nothing can be changed on them. Resume first, in an apply that changes nothing else "+
				"(paused = false or a later expires_at of k8s_network, or power_state = \"running\"), then change it.", name, what, who))
	}
}

// withoutPower returns a value without the power states in it, and without the public addresses of
// instances: these change with the power, and when an Elastic IP is associated.
func withoutPower(v tftypes.Value) tftypes.Value {
	out, err := tftypes.Transform(v, func(p *tftypes.AttributePath, v tftypes.Value) (tftypes.Value, error) {
		var members map[string]tftypes.Value
		switch {
		case p.LastStep() == tftypes.AttributeName("power_state"):
			return tftypes.NewValue(v.Type(), nil), nil
		case !v.Type().Is(tftypes.Object{}) || !v.IsKnown() || v.IsNull():
			return v, nil
		}
		if err := v.As(&members); err != nil {
			return v, err
		}
		if id, ok := members["instance_id"]; !ok || id.IsNull() {
			return v, nil
		}
		for _, name := range []string{"address", "public_ip"} {
			members[name] = tftypes.NewValue(tftypes.String, nil)
		}
		return tftypes.NewValue(v.Type(), members), nil
	})
	if err != nil {
		return v
	}
	return out
}

// PauseExpired returns a state as it would be if the machines in it that have expired were paused with their cluster, and
// likewise the API servers of a cluster that has expired.
func PauseExpired(state tftypes.Value, instance, cluster func(string) bool) tftypes.Value {
	out, err := tftypes.Transform(state, func(_ *tftypes.AttributePath, v tftypes.Value) (tftypes.Value, error) {
		members := membersOf(v)
		power, ok := members["power_state"]
		if !ok {
			return v, nil
		}
		switch {
		case instance(textIn(members["instance_id"])):
			members["power_state"] = tftypes.NewValue(power.Type(), "paused")
		case cluster(textIn(membersOf(members["pki"])["cluster"])):
			members["power_state"] = tftypes.NewValue(power.Type(), "stopped")
		}
		return tftypes.NewValue(v.Type(), members), nil
	})
	if err != nil {
		return state
	}
	return out
}

// PauseExpiredNetwork returns the state of a resource in a network as it would be if the network were paused, if its
// expires_at has passed.
func PauseExpiredNetwork(state tftypes.Value, now time.Time) tftypes.Value {
	members := membersOf(state)
	network := membersOf(members["network"])
	at, err := time.Parse(time.RFC3339, textIn(network["expires_at"]))
	if err != nil || now.Before(at) {
		return state
	}
	network["paused"] = tftypes.NewValue(tftypes.Bool, true)
	members["network"] = tftypes.NewValue(members["network"].Type(), network)
	return tftypes.NewValue(state.Type(), members)
}

// membersOf returns the attributes of an object, nil if it is none that is known.
func membersOf(v tftypes.Value) (members map[string]tftypes.Value) {
	if v.Type() == nil || !v.Type().Is(tftypes.Object{}) || !v.IsKnown() || v.IsNull() || v.As(&members) != nil {
		return nil
	}
	return members
}

// textIn returns a text, empty if it is none that is known.
func textIn(v tftypes.Value) (text string) {
	if v.Type() == nil || !v.Type().Is(tftypes.String) || !v.IsKnown() || v.IsNull() || v.As(&text) != nil {
		return ""
	}
	return text
}
