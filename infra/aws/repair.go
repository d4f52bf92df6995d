package aws

import (
	"context"

	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/finding"
)

// Repair is the differences of one resource and the calls that remove them.
type Repair struct {
	Findings []finding.Finding // of one subject; at least one
	Fix      func(context.Context) error
}

// RepairOf returns the repair of a single finding.
func RepairOf(f finding.Finding, fix func(context.Context) error) Repair {
	return Repair{Findings: []finding.Finding{f}, Fix: fix}
}

// FindingsOf returns the findings of repairs.
func FindingsOf(repairs []Repair) []finding.Finding {
	var out []finding.Finding
	for _, r := range repairs {
		out = append(out, r.Findings...)
	}
	return out
}
