package controlplane

import (
	"errors"
	"maps"
	"slices"
	"testing"

	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/component"
	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/desired"
	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/rollout"
)

// TestToLoad: API servers are waited for only if it is known what all of them are to load.
func TestToLoad(t *testing.T) {
	machine := func(authentication, keys string) *rollout.Machine {
		m := &rollout.Machine{}
		m.Want.State.Files = []desired.File{{Path: "/other"}, {Path: component.AuthenticationPath, Content: []byte(authentication)}}
		if keys != "" {
			m.Record.Secrets = map[string]rollout.SecretRecord{component.EncryptionConfigPath: {SHA256: keys}}
		}
		return m
	}
	gone := machine("a", "k")
	gone.Gone = errors.New("it does not answer")
	const a = "ca978112ca1bbdcafac231b39a23dc4da786eff8147c4e72b9807785afee48bb" // of "a"
	for _, tt := range []struct {
		name     string
		machines []*rollout.Machine
		want     loaded
	}{
		{"all the same", []*rollout.Machine{machine("a", "k"), machine("a", "k")}, loaded{component.AuthenticationPath: a, component.EncryptionConfigPath: "k"}},
		{"imported", []*rollout.Machine{machine("a", ""), machine("a", "")}, loaded{component.AuthenticationPath: a}},
		{"one is imported", []*rollout.Machine{machine("a", "k"), machine("a", "")}, nil},
		{"other keys", []*rollout.Machine{machine("a", "k"), machine("a", "l")}, nil},
		{"one was left", []*rollout.Machine{machine("a", "k"), gone}, nil},
	} {
		o := &operation{Operation: &rollout.Operation{Machines: tt.machines}}
		if got := o.toLoad(); !maps.Equal(got, tt.want) {
			t.Errorf("%s: %v, wanted %v", tt.name, got, tt.want)
		}
	}
	has := loaded{component.AuthenticationPath: "former", component.EncryptionConfigPath: "k"}
	if got := has.lacks(loaded{component.AuthenticationPath: a, component.EncryptionConfigPath: "k"}); !slices.Equal(got, []string{component.AuthenticationPath}) {
		t.Errorf("it lacks %v", got)
	}
	if got := has.lacks(loaded{component.AuthenticationPath: "former"}); len(got) > 0 {
		t.Errorf("it lacks %v", got)
	}
}
