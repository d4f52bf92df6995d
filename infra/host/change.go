package host

import "github.com/k8s-from-scratch/terraform-provider-k8s/infra/finding"

// Change is one difference between a machine and its wanted state. The finding's subject is empty:
// the caller knows the machine.
type Change struct {
	finding.Finding
	Restarts []string // units Apply restarts or reloads because of this change
}

// Findings returns the findings of changes.
func Findings(changes []Change) []finding.Finding {
	out := make([]finding.Finding, len(changes))
	for i, c := range changes {
		out[i] = c.Finding
	}
	return out
}

// Words joins the changes into one line for people.
func Words(changes []Change) string { return finding.Words(Findings(changes)) }

// AttributesOnly reports whether the content of the file is as wanted.
func (c Change) AttributesOnly() bool {
	switch c.Problem {
	case finding.Mode, finding.NotExecutable, finding.Owner, finding.Group:
		return true
	}
	return false
}

// stranger reports whether something is not wanted: in an exclusive directory, or a file that was wanted before.
func (c Change) stranger() bool { return c.Kind == finding.File && c.Problem == finding.NotWanted }
