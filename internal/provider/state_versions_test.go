package provider

import (
	"encoding/json"
	"maps"
	"os"
	"slices"
	"testing"

	"github.com/hashicorp/terraform-plugin-go/tfprotov6"
	"github.com/hashicorp/terraform-plugin-go/tftypes"
)

// schemaVersions are the versions of the present release. A change here needs
// an upgrader from every earlier version, and a state of the release before it
// in testdata, which TestUpgradeState goes through.
var schemaVersions = map[string]int64{
	"k8s_network": 1, "k8s_machine": 1,
	"k8s_pki": 1, "k8s_lb": 1, "k8s_etcd_cluster": 1, "k8s_control_plane": 1, "k8s_worker_pool": 1, "k8s_addon": 1, "k8s_kubeconfig": 1,
}

func TestSchemaVersions(t *testing.T) {
	c := newCore(t, New("test"), nil)
	found := map[string]int64{}
	for name, s := range c.schemas.ResourceSchemas {
		found[name] = s.Version
	}
	if !maps.Equal(found, schemaVersions) {
		t.Errorf("schema versions %v, wanted %v", found, schemaVersions)
	}
}

// TestUpgradeState reads a state that the release with version 0 of every
// resource wrote for examples/ha-cluster (its private keys were never in it),
// and wants nothing to change because of it.
func TestUpgradeState(t *testing.T) {
	raw, err := os.ReadFile("testdata/state-version-0.json")
	if err != nil {
		t.Fatal(err)
	}
	var states map[string]struct {
		Version    int64           `json:"schema_version"`
		Attributes json.RawMessage `json:"attributes"`
	}
	if err := json.Unmarshal(raw, &states); err != nil {
		t.Fatal(err)
	}
	c := newCore(t, New("test"), values{"region": "us-east-1", "access_key": "a", "secret_key": "b"})
	for _, name := range slices.Sorted(maps.Keys(states)) {
		t.Run(name, func(t *testing.T) {
			i := c.instance(name)
			resp, err := c.server.UpgradeResourceState(t.Context(), &tfprotov6.UpgradeResourceStateRequest{
				TypeName: name, Version: states[name].Version, RawState: &tfprotov6.RawState{JSON: states[name].Attributes},
			})
			if err != nil {
				t.Fatal(err)
			}
			c.fatal(resp.Diagnostics)
			i.state = i.unmarshal(resp.UpgradedState)

			now := plain(i.state).(values)
			for _, at := range []string{"pki", "ref"} {
				ref, _ := now[at].(values)
				if _, holdsKeys := ref["kubernetes_ca_pem"]; !holdsKeys {
					continue
				}
				generations, _ := ref["generations"].(values)
				if len(generations) != 5 || len(generations["encryption"].([]any)) != 1 {
					t.Errorf("%s.generations became %v", at, ref["generations"])
				}
			}
			if changed := i.changedByItself(); len(changed) > 0 {
				t.Errorf("a plan with the same configuration changes %v", changed)
			}
		})
	}
}

// changedByItself plans the configuration the state was made of and returns
// the attributes that would change: but for the digests of files and manifests,
// which every release may render anew.
func (i *instance) changedByItself() []string {
	i.core.t.Helper()
	var attributes map[string]tftypes.Value
	if err := i.state.As(&attributes); err != nil {
		i.core.t.Fatal(err)
	}
	configured := maps.Clone(attributes)
	for _, a := range i.schema.Block.Attributes {
		if !a.Required && !a.Optional {
			configured[a.Name] = tftypes.NewValue(attributes[a.Name].Type(), nil)
		}
	}
	config := tftypes.NewValue(i.schema.ValueType(), configured)
	resp, err := i.core.server.PlanResourceChange(i.core.t.Context(), &tfprotov6.PlanResourceChangeRequest{
		TypeName: i.typeName, PriorState: i.core.dynamic(i.schema, i.state),
		ProposedNewState: i.core.dynamic(i.schema, i.propose(config)), Config: i.core.dynamic(i.schema, config),
	})
	if err != nil {
		i.core.t.Fatal(err)
	}
	i.core.fatal(resp.Diagnostics)
	var planned map[string]tftypes.Value
	if err := i.unmarshal(resp.PlannedState).As(&planned); err != nil {
		i.core.t.Fatal(err)
	}
	var out []string
	for name, v := range planned {
		if !v.Equal(attributes[name]) && name != "files" && name != "objects" {
			out = append(out, name)
		}
	}
	return out
}
