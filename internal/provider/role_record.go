package provider

import (
	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/artifact"
	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/rollout"
)

// roleRecord is what a role resource keeps in private state: hashes only.
type roleRecord struct {
	Record rollout.Record `json:"record"`
	// Checksums are those that were looked up while applying, by path in the
	// mirror's layout: pinned from then on.
	Checksums map[string]string `json:"checksums,omitempty"`
}

// recordKey is where private state holds the roleRecord.
const recordKey = "record"

// complete gives artifacts the checksums that an earlier apply looked up, and
// reports whether all are known.
func (r roleRecord) complete(as []artifact.Artifact) bool {
	known := true
	for i := range as {
		if as[i].SHA256 == "" {
			as[i].SHA256 = r.Checksums[as[i].Path]
		}
		known = known && as[i].SHA256 != ""
	}
	return known
}

func (r *roleRecord) note(as []artifact.Artifact) {
	r.Checksums = map[string]string{}
	for _, a := range as {
		r.Checksums[a.Path] = a.SHA256
	}
}
