package roles

import (
	"context"
	"fmt"

	"github.com/hashicorp/terraform-plugin-framework/diag"

	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/artifact"
	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/rollout"
	"github.com/k8s-from-scratch/terraform-provider-k8s/internal/provider/session"
)

// roleRecord is what a role resource keeps in private state. It contains only hashes.
type roleRecord struct {
	Record rollout.Record `json:"record"`
	// Checksums are the checksums that were looked up by an apply, by path in the mirror's layout.
	// They are pinned from then on.
	Checksums map[string]string `json:"checksums,omitempty"`
	// Places are where the instances of Record.Left are, by instance id.
	Places map[string]place `json:"places,omitempty"`
}

// place is where something is in AWS.
type place struct {
	Account string `json:"account"`
	Region  string `json:"region"`
}

// recordKey is the private-state entry of roleRecord.
const recordKey = "record"

// addChecksums sets the checksums that an earlier apply has looked up, and reports whether all are
// known.
func (r roleRecord) addChecksums(as []artifact.Artifact) bool {
	known := true
	for i := range as {
		if as[i].SHA256 == "" {
			as[i].SHA256 = r.Checksums[as[i].Path]
		}
		known = known && as[i].SHA256 != ""
	}
	return known
}

// pinChecksums sets the checksums of downloads, from the record or else by looking them up, and
// keeps them in the record.
func pinChecksums(ctx context.Context, d *session.Session, rec *roleRecord, downloads []artifact.Artifact, diags *diag.Diagnostics) {
	if !rec.addChecksums(downloads) {
		if d.ChecksumsUnknown {
			session.AddError(diags, "Cannot determine the checksum of a download", fmt.Errorf("%w: artifact_checksums", session.ErrNotYetKnown))
			return
		}
		if err := d.Catalog.Resolve(ctx, downloads); err != nil {
			session.AddError(diags, "Cannot determine the checksum of a download", err)
			return
		}
	}
	rec.Checksums = map[string]string{}
	for _, a := range downloads {
		rec.Checksums[a.Path] = a.SHA256
	}
}
