package etcd

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/finding"
)

func TestCompare(t *testing.T) {
	a := Member{ID: 0xa, Name: "a", PeerURLs: []string{"https://10.0.0.1:2380"}}
	b := Member{ID: 0xb, Name: "b", PeerURLs: []string{"https://10.0.0.2:2380"}}
	announced := Member{ID: 0xb, PeerURLs: b.PeerURLs, Learner: true}
	wanted := []Wanted{{"a", a.PeerURLs[0]}, {"b", b.PeerURLs[0]}}
	for _, tt := range []struct {
		name    string
		members []Member
		wanted  []Wanted
		want    []finding.Finding
	}{
		{"as wanted", []Member{a, b}, wanted, nil},
		{"nothing wanted of nothing", nil, nil, nil},
		{"one missing", []Member{a}, wanted, []finding.Finding{{Subject: "b", Kind: finding.Member, Problem: finding.Missing}}},
		{"one announced, not started", []Member{announced, a}, wanted,
			[]finding.Finding{{Subject: "b", Kind: finding.Member, Target: "b", Problem: finding.Learner}}},
		{"one too many", []Member{a, b}, wanted[:1], []finding.Finding{{Subject: "b", Kind: finding.Member, Target: "b", Problem: finding.NotWanted}}},
		{"one too many without a name", []Member{announced, a}, wanted[:1],
			[]finding.Finding{{Subject: "b", Kind: finding.Member, Target: "b", Problem: finding.NotWanted}}},
		{"at another address", []Member{a, {ID: 0xc, Name: "b", PeerURLs: []string{"https://10.0.0.9:2380"}}}, wanted, nil},
		{"another at its address", []Member{a, {ID: 0xc, Name: "c", PeerURLs: b.PeerURLs}}, wanted,
			[]finding.Finding{{Subject: "b", Kind: finding.Member, Problem: finding.Missing},
				{Subject: "c", Kind: finding.Member, Target: "c", Problem: finding.NotWanted}}},
	} {
		if d := cmp.Diff(tt.want, Compare(tt.members, tt.wanted)); d != "" {
			t.Errorf("%s: %s", tt.name, d)
		}
	}
}
