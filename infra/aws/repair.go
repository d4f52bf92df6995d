package aws

import (
	"context"

	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/finding"
)

// repair is what differs of one thing and the call or two that end it.
type repair struct {
	findings []finding.Finding // of one subject; there is at least one
	fix      func(context.Context) error
	// power is set when a machine is to be stopped and started, which fixes it
	// without a call of its own.
	power bool
	table string // the route table it is about
}

// repairOf is the repair of a single finding.
func repairOf(f finding.Finding, fix func(context.Context) error) repair {
	return repair{findings: []finding.Finding{f}, fix: fix}
}

// findingsOf lists what the repairs are for.
func findingsOf(repairs []repair) []finding.Finding {
	var out []finding.Finding
	for _, r := range repairs {
		out = append(out, r.findings...)
	}
	return out
}
