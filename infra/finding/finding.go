// Package finding holds what is found to differ from what is wanted: of
// machines, of what is in AWS, of objects in a cluster, of etcd's members and of
// keys. A [Finding] is data. Its words are made here, from one table, when a
// person is to read them; no code reads them again.
//
// It is pure, and imports nothing of this repository. What may not enter: how
// something is found, what is done about it, and words that depend on anything
// but the Finding.
package finding

import (
	"maps"
	"slices"
)

// Finding is one difference between what is and what is wanted. It is
// comparable, and plain JSON. It never holds a secret.
type Finding struct {
	// Subject is whose finding it is: a machine ("worker-0"), a thing in AWS
	// ("security group worker") or an object ("ConfigMap kube-system/coredns").
	Subject string `json:"subject,omitempty"`
	Kind    Kind   `json:"kind"`
	// Target is which of its kind it is about: a path, a unit, the key of a tag.
	// It is empty where a subject has only one.
	Target string `json:"target,omitempty"`
	// Problem is how it differs.
	Problem Problem `json:"problem"`
	// Found and Wanted are the two values as text, digests in full. They are
	// empty where there is none, where the kind or the problem says it already,
	// and for secrets.
	Found  string `json:"found,omitempty"`
	Wanted string `json:"wanted,omitempty"`
	// Cause is what a program says of it: systemd's result, the output of a
	// check, the error of an API. It is quoted, not understood.
	Cause string `json:"cause,omitempty"`
}

// About returns the findings as findings about a subject.
func About(subject string, findings []Finding) []Finding {
	out := slices.Clone(findings)
	for i := range out {
		out[i].Subject = subject
	}
	return out
}

// BySubject returns what a person reads of each subject, as [Words] writes it.
func BySubject(findings []Finding) map[string]string {
	lists := map[string][]Finding{}
	for _, f := range findings {
		lists[f.Subject] = append(lists[f.Subject], f)
	}
	out := make(map[string]string, len(lists))
	for subject := range maps.Keys(lists) {
		out[subject] = Words(lists[subject])
	}
	return out
}
