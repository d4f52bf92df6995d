package aws

import (
	"context"

	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/finding"
)

// repair is the differences of one resource and the calls that remove them.
type repair struct {
	findings []finding.Finding // of one subject; at least one
	fix      func(context.Context) error
}

// repairOf returns the repair of a single finding.
func repairOf(f finding.Finding, fix func(context.Context) error) repair {
	return repair{findings: []finding.Finding{f}, fix: fix}
}

// findingsOf returns the findings of repairs.
func findingsOf(repairs []repair) []finding.Finding {
	var out []finding.Finding
	for _, r := range repairs {
		out = append(out, r.findings...)
	}
	return out
}
