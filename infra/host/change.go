package host

import "github.com/k8s-from-scratch/terraform-provider-k8s/infra/finding"

// Change is one difference between a machine and what is wanted of it. Its
// subject is empty: the caller knows which machine it is about.
type Change struct {
	finding.Finding
	Restarts []string // units Apply restarts or reloads because of this change
}

// Findings returns what the changes were found by.
func Findings(changes []Change) []finding.Finding {
	out := make([]finding.Finding, len(changes))
	for i, c := range changes {
		out[i] = c.Finding
	}
	return out
}

// Words joins the changes into the one line a person reads of a machine.
func Words(changes []Change) string { return finding.Words(Findings(changes)) }

// attributesOnly says whether the content at the path is as wanted.
func (c Change) attributesOnly() bool {
	switch c.Problem {
	case finding.Mode, finding.NotExecutable, finding.Owner, finding.Group:
		return true
	}
	return false
}
