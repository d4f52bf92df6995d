package etcdcluster

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/etcd"
	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/finding"
	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/host"
	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/rollout"
)

// TestCompareDatabases tells what is drift from what only a person can change.
func TestCompareDatabases(t *testing.T) {
	const mib = 1 << 20
	member := func(id etcd.ID, size, inUse int64, alarms ...etcd.Alarm) databaseFacts {
		return databaseFacts{status: etcd.Status{ID: id, Leader: 1, DBSize: size * mib, DBSizeInUse: inUse * mib, Quota: 2048 * mib, Alarms: alarms}}
	}
	slow, tight, alone, learner := member(1, 20, 10), member(1, 20, 10), member(1, 20, 10, etcd.Alarm{Member: 1, Type: etcd.NoSpace}), member(1, 1946, 410)
	slow.disk = etcd.Disk{Syncs: 5000, Sync: 1024 * time.Millisecond}
	tight.room = host.FileRoom{Free: 1000 * mib, Used: 24 * mib}
	alone.status.Leader = 0
	learner.status.Learner = true
	noSpace := func(id etcd.ID) etcd.Alarm { return etcd.Alarm{Member: id, Type: etcd.NoSpace} }
	for _, tt := range []struct {
		name            string
		all             map[string]databaseFacts
		drift, concerns []string
	}{
		{"nothing", map[string]databaseFacts{"a": member(1, 20, 10), "b": member(2, 20, 10)}, nil, nil},
		{"fragmented", map[string]databaseFacts{"a": member(1, 1946, 410), "b": member(2, 20, 10)},
			[]string{"a: etcd database: 1.9 GiB of quota 2 GiB, 1.5 GiB free inside, wants defragmentation"}, nil},
		{"a learner is left alone", map[string]databaseFacts{"a": learner}, nil, nil},
		{"nearly full", map[string]databaseFacts{"b": member(1, 1900, 1843)}, nil,
			[]string{"b: etcd database: 1.8 GiB of quota 2 GiB hold data: delete objects that nobody needs, or raise quota_mib"}},
		{"full, and known to both", map[string]databaseFacts{"a": member(1, 2048, 410, noSpace(1)), "b": member(2, 1946, 410, noSpace(1))},
			[]string{"a: etcd alarm NOSPACE: 2 GiB of quota 2 GiB, 410 MiB hold data, and nothing more is stored",
				"b: etcd database: 1.9 GiB of quota 2 GiB, 1.5 GiB free inside, wants defragmentation"}, nil},
		{"full of a member that does not answer", map[string]databaseFacts{"a": member(1, 20, 10, noSpace(9))},
			[]string{"etcd member 9: etcd alarm NOSPACE: an unknown size of quota 2 GiB, an unknown part hold data, and nothing more is stored"}, nil},
		{"corrupt", map[string]databaseFacts{"a": member(1, 20, 10, etcd.Alarm{Type: etcd.Corrupt})},
			[]string{"etcd: etcd alarm CORRUPT: the data of the members differ, every change is refused, and only a person can tell which are right"}, nil},
		{"an old state of a member without a leader", map[string]databaseFacts{"a": alone}, nil, nil},
		{"slow", map[string]databaseFacts{"a": slow}, nil,
			[]string{"a: disk of etcd: more than 1% of the writes took longer than 512ms since the member started (1.024s): requests wait, and the leadership may change under load"}},
		{"a quota that does not fit", map[string]databaseFacts{"a": tight}, nil,
			[]string{"a: etcd database: its quota of 2 GiB does not fit, the file system of /var/lib/etcd has 1 GiB for it: enlarge the volume, or lower quota_mib"}},
	} {
		words := func(found []finding.Finding) (out []string) {
			for _, f := range found {
				out = append(out, fmt.Sprintf("%s: %s", f.Subject, f))
			}
			return out
		}
		drift, concerns := compareDatabases(tt.all, 2048*mib)
		if !slices.Equal(words(drift), tt.drift) || !slices.Equal(words(concerns), tt.concerns) {
			t.Errorf("%s:\ndrift %q, wanted %q\nconcerns %q, wanted %q", tt.name, words(drift), tt.drift, words(concerns), tt.concerns)
		}
	}
}

// TestDeferDefragmentation: what no apply repairs while a machine is away is no drift, and a person
// learns why.
func TestDeferDefragmentation(t *testing.T) {
	about := func(problem finding.Problem) finding.Finding {
		return finding.Finding{Subject: "a", Kind: finding.Database, Problem: problem, Found: "90 MiB", Wanted: "100 MiB", Size: "80 MiB"}
	}
	other := finding.Finding{Subject: "a", Kind: finding.File, Target: "/x", Problem: finding.Missing}
	waits := about(finding.Loose)
	waits.Away = "b, c"
	for _, tt := range []struct {
		away            []string
		drift, concerns []finding.Finding
	}{
		{nil, []finding.Finding{about(finding.Fragmented), other}, []finding.Finding{about(finding.NearlyFull)}},
		{[]string{"b", "c"}, []finding.Finding{other}, []finding.Finding{about(finding.NearlyFull), waits}},
	} {
		r := rollout.Report{Findings: []finding.Finding{about(finding.Fragmented), other}, Concerns: []finding.Finding{about(finding.NearlyFull)}}
		deferDefragmentation(&r, tt.away)
		if !slices.Equal(r.Findings, tt.drift) || !slices.Equal(r.Concerns, tt.concerns) {
			t.Errorf("away %q: drift %v, concerns %v", tt.away, r.Findings, r.Concerns)
		}
	}
}
