package rollout

import (
	"testing"

	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/component"
	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/desired"
)

func TestNodeProof(t *testing.T) {
	with := func(content string) *machine {
		return &machine{want: component.Machine{State: desired.State{Files: []desired.File{{Path: "/etc/a", Content: []byte(content)}}}}}
	}
	runs := nodeRuns{boot: "b", units: "1.2"}
	note := runs.proof(with("x"))
	if again := runs.proof(with("x")); again != note {
		t.Errorf("the same state gives %q and %q", note, again)
	}
	if other := runs.proof(with("y")); other == note || !runs.proves(other) {
		t.Errorf("another file with the same units gives %q, before %q", other, note)
	}
	for _, later := range []nodeRuns{{units: "1.3"}, {units: "1"}, {units: "1.22"}, {units: ""}} {
		if later.proves(note) {
			t.Errorf("%q proves what runs as %q", note, later.units)
		}
	}
}
