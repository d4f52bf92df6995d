// Package finding holds what differs from what is wanted: on machines, in AWS, in objects of a
// cluster, in etcd's members and in keys. A [Finding] is data. Its words are made here, from one
// table, only to be shown; no code parses them.
//
// It is pure. What may not enter: other packages of this repository but the one that makes quoted text fit to be shown, how a difference is found,
// what is done about it, and words that depend on anything but the Finding.
package finding

import (
	"slices"

	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/foreign"
)

// Finding is one difference from what is wanted. It is comparable and plain JSON, and never holds a
// secret.
type Finding struct {
	// Subject is a machine ("worker-0"), a resource in AWS ("security group worker") or an object
	// ("ConfigMap kube-system/coredns").
	Subject string `json:"subject,omitempty"`
	Kind    Kind   `json:"kind"`
	// Target is the thing of that kind: a path, a unit, the key of a tag. It is empty if a subject
	// has only one.
	Target string `json:"target,omitempty"`
	// Problem is how it differs.
	Problem Problem `json:"problem"`
	// Found and Wanted are the two values as text, digests in full. They are empty if there is
	// none, if the kind or the problem implies it, and for secrets. Several names are joined with
	// line breaks.
	Found  string `json:"found,omitempty"`
	Wanted string `json:"wanted,omitempty"`
	// Process and Unit are those that use a resource, such as a port. Size is a wanted or total
	// size, and Device is the device of a file system. Since is the day from which on something is due.
	// Away are machines that cannot be reached and that a repair waits for. Manager is the field
	// manager that has set what was found. They are empty for other problems.
	Process string `json:"process,omitempty"`
	Unit    string `json:"unit,omitempty"`
	Size    string `json:"size,omitempty"`
	Device  string `json:"device,omitempty"`
	Since   string `json:"since,omitempty"`
	Away    string `json:"away,omitempty"`
	Manager string `json:"manager,omitempty"`
	// Cause is what a program reported: systemd's result, the output of a check, the error of an
	// API. It is only quoted.
	Cause string `json:"cause,omitempty"`
	// Detail are lines for people that show how a text differs, without secrets.
	Detail string `json:"detail,omitempty"`
}

// About returns the findings with their subject set.
func About(subject string, findings []Finding) []Finding {
	out := slices.Clone(findings)
	for i := range out {
		out[i].Subject = subject
	}
	return out
}

// subjectLimit is how many characters of a subject are shown: a name in Kubernetes has 253 at most.
const subjectLimit = 512

// BySubject returns the words of each subject's findings, each in a line of its own, with its details below it.
func BySubject(findings []Finding) map[string]string {
	lists := map[string][]Finding{}
	for _, f := range findings {
		lists[f.Subject] = append(lists[f.Subject], f)
	}
	out := make(map[string]string, len(lists))
	for subject, list := range lists {
		out[foreign.Line(subject, subjectLimit)] = text(list, "\n", true)
	}
	return out
}
