package etcd

import (
	"slices"

	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/finding"
)

// Wanted is a member that a cluster should have.
type Wanted struct{ Name, PeerURL string }

// In finds the member in a list: by name, or by the address it was announced with as long as it has
// not started and has no name.
func (w Wanted) In(members []Member) (Member, bool) {
	for _, m := range members {
		if m.Name == w.Name || m.Name == "" && slices.Contains(m.PeerURLs, w.PeerURL) {
			return m, true
		}
	}
	return Member{}, false
}

// Compare returns how the members of a cluster differ from those wanted: those missing, those that
// are learners, and those not wanted. The subject is the member's name, or its ID where it has
// none. It is pure.
func Compare(members []Member, wanted []Wanted) []finding.Finding {
	var out []finding.Finding
	known := map[ID]bool{}
	for _, w := range wanted {
		member, ok := w.In(members)
		known[member.ID] = known[member.ID] || ok
		switch {
		case !ok:
			out = append(out, finding.Finding{Subject: w.Name, Kind: finding.Member, Problem: finding.Missing})
		case member.Learner:
			out = append(out, finding.Finding{Subject: w.Name, Kind: finding.Member, Target: member.ID.String(), Problem: finding.Learner})
		}
	}
	for _, m := range members {
		if !known[m.ID] {
			out = append(out, finding.Finding{Subject: m.Label(), Kind: finding.Member, Target: m.ID.String(), Problem: finding.NotWanted})
		}
	}
	return out
}
