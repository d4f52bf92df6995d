// Package codes lists the error codes that the local EC2 answers with. What a real account answers
// and this list does not have, the local EC2 cannot have rehearsed.
package codes

import (
	_ "embed"
	"slices"
	"strings"
)

//go:embed codes.txt
var list string

// Known returns the codes, sorted. Codes that only an injected fault can have are not among them.
func Known() []string { return strings.Fields(list) }

// Unknown returns those of the codes that the local EC2 never answers with, sorted and each once.
func Unknown(met []string) []string {
	known := Known()
	var out []string
	for _, code := range met {
		if _, found := slices.BinarySearch(known, code); !found {
			out = append(out, code)
		}
	}
	slices.Sort(out)
	return slices.Compact(out)
}
