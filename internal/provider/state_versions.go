package provider

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"

	"github.com/hashicorp/terraform-plugin-framework/resource"
	"github.com/hashicorp/terraform-plugin-go/tfprotov6"

	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/pki"
)

// Versions of what resources keep in state. A release that gives an attribute
// another type or place counts the version of every resource concerned up and
// says here how older states become the present one. What is merely added
// needs no version: it is null in an older state.
const (
	// refVersion is that of resources with a reference to the cluster's keys.
	// Since 1 it has `generations` in place of `encryption_key_name`.
	refVersion = 1
	// networkVersion is that of resources with a reference to the network. Since
	// 1 its subnets are without `route_table_id`.
	networkVersion = 1
)

var (
	_ resource.ResourceWithUpgradeState = (*networkResource)(nil)
	_ resource.ResourceWithUpgradeState = (*machineResource)(nil)
	_ resource.ResourceWithUpgradeState = (*pkiResource)(nil)
	_ resource.ResourceWithUpgradeState = (*roleResource[any, any])(nil)
	_ resource.ResourceWithUpgradeState = (*addonResource)(nil)
	_ resource.ResourceWithUpgradeState = (*kubeconfigResource)(nil)
)

// UpgradeState implements resource.ResourceWithUpgradeState.
func (r *networkResource) UpgradeState(context.Context) map[int64]resource.StateUpgrader {
	return map[int64]resource.StateUpgrader{0: rawUpgrader(dropRouteTables)}
}

// UpgradeState implements resource.ResourceWithUpgradeState.
func (r *machineResource) UpgradeState(context.Context) map[int64]resource.StateUpgrader {
	return map[int64]resource.StateUpgrader{0: rawUpgrader(dropRouteTables)}
}

// UpgradeState implements resource.ResourceWithUpgradeState.
func (r *pkiResource) UpgradeState(context.Context) map[int64]resource.StateUpgrader {
	return refUpgraders()
}

// UpgradeState implements resource.ResourceWithUpgradeState.
func (r *roleResource[M, S]) UpgradeState(context.Context) map[int64]resource.StateUpgrader {
	return refUpgraders()
}

// UpgradeState implements resource.ResourceWithUpgradeState.
func (r *addonResource) UpgradeState(context.Context) map[int64]resource.StateUpgrader {
	return refUpgraders()
}

// UpgradeState implements resource.ResourceWithUpgradeState.
func (r *kubeconfigResource) UpgradeState(context.Context) map[int64]resource.StateUpgrader {
	return refUpgraders()
}

// refUpgraders lead from every earlier version to refVersion.
func refUpgraders() map[int64]resource.StateUpgrader {
	return map[int64]resource.StateUpgrader{0: rawUpgrader(addGenerations)}
}

// rawUpgrader changes the state as JSON, so that no schema of the past has to
// be kept.
func rawUpgrader(change func(map[string]any)) resource.StateUpgrader {
	return resource.StateUpgrader{StateUpgrader: func(_ context.Context, req resource.UpgradeStateRequest, resp *resource.UpgradeStateResponse) {
		after, err := changeRaw(req.RawState.JSON, change)
		if err != nil {
			resp.Diagnostics.AddError("Unreadable state of an earlier version", err.Error())
			return
		}
		resp.DynamicValue = &tfprotov6.DynamicValue{JSON: after}
	}}
}

func changeRaw(before []byte, change func(map[string]any)) ([]byte, error) {
	var state map[string]any
	d := json.NewDecoder(bytes.NewReader(before))
	d.UseNumber()
	if err := d.Decode(&state); err != nil {
		return nil, fmt.Errorf("the state is not a JSON object: %w", err)
	}
	change(state)
	return json.Marshal(state)
}

// addGenerations brings the reference, `ref` of k8s_pki and `pki` of the
// others, from version 0 to 1: every key was of the first generation.
func addGenerations(state map[string]any) {
	for _, name := range []string{"ref", "pki"} {
		ref, ok := state[name].(map[string]any)
		if !ok {
			continue
		}
		if _, old := ref["encryption_key_name"]; !old {
			continue
		}
		delete(ref, "encryption_key_name")
		generations := map[string]any{}
		for _, kind := range pki.Kinds() {
			generations[string(kind)] = []any{1}
		}
		ref["generations"] = generations
	}
}

// dropRouteTables brings the reference, `ref` of k8s_network and `network` of
// k8s_machine, from version 0 to 1: route tables are looked up by subnet.
func dropRouteTables(state map[string]any) {
	for _, name := range []string{"ref", "network"} {
		ref, _ := state[name].(map[string]any)
		subnets, _ := ref["subnets"].([]any)
		for _, s := range subnets {
			if subnet, ok := s.(map[string]any); ok {
				delete(subnet, "route_table_id")
			}
		}
	}
}
