package host

import (
	"context"
	"encoding/base64"
	"slices"
	"strconv"

	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/desired"
	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/finding"
	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/foreign"
	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/lines"
	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/setting"
)

const (
	// maxExplained is how large a text may be whose differing lines are shown, and maxExplanations how many files
	// of one machine are fetched for that.
	maxExplained    = 16 << 10
	maxExplanations = 20
	// How many of the lines are shown, and how many characters of each.
	explainedLines = 10
	explainedWidth = 160
)

// Explain returns the changes with the lines in which files differ, of files that may be shown in full. It fetches
// these files, in one round trip; if that fails, the changes stay as they are, with digests.
func Explain(ctx context.Context, r Runner, want desired.State, got Observation, changes []Change) []Change {
	wanted := map[string]string{}
	var s script
	for _, c := range changes {
		if c.Kind != finding.File || c.Problem != finding.Content || len(wanted) == maxExplanations {
			continue
		}
		for _, f := range want.Files {
			if f.Path == c.Target && f.Text != nil && !f.Secret && !f.Hides() && len(f.Text) <= maxExplained && got.Files[f.Path].Size <= maxExplained {
				wanted[f.Path] = string(f.Text)
				s.call("read_head", strconv.Itoa(maxExplained), f.Path)
			}
		}
	}
	if len(wanted) == 0 {
		return changes
	}
	found, err := read(ctx, r, s.String())
	if err != nil {
		return changes
	}
	out := slices.Clone(changes)
	for i := range out {
		c := &out[i]
		encoded, fetched := found[c.Target]
		text, err := base64.StdEncoding.DecodeString(string(encoded))
		if c.Kind != finding.File || c.Problem != finding.Content || !fetched || err != nil || desired.Sum(text) != c.Found {
			continue // it has just changed again
		}
		// What looks like a secret is replaced in both, so that it does not differ by that.
		ought := foreign.Text(wanted[c.Target])
		c.Detail = lines.Differing(lines.Mask(foreign.Text(string(text)), ought, setting.Plain), ought, explainedLines, explainedWidth)
	}
	return out
}
