package rollout

import (
	"slices"

	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/finding"
	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/host"
)

// Upheaval says what of a program's changes on one machine needs a snapshot before: its upgrade or a
// rotation of keys. It is empty if nothing does. A program or file that is missing, or has another mode
// or owner, is a repair.
func Upheaval(changes []host.Change, unit, program string, keyFiles []string) string {
	for _, c := range changes {
		switch {
		case !slices.Contains([]finding.Problem{finding.Version, finding.Content, finding.SecretContent}, c.Problem):
		case c.Kind == finding.Binary && slices.Contains(c.Restarts, unit):
			return "the upgrade of " + program
		case c.Kind == finding.File && slices.Contains(keyFiles, c.Target):
			return "the rotation of keys"
		}
	}
	return ""
}
