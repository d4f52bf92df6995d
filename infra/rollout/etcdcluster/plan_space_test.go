package etcdcluster

import (
	"strings"
	"testing"

	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/etcd"
	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/fleet"
)

// TestPlanEtcdSpace plans what is done about alarms and databases. A quota is in MiB; 0 means that
// it stays as it is.
func TestPlanEtcdSpace(t *testing.T) {
	full, noSpace := etcd.Space{Size: 100 << 20, InUse: 90 << 20, Quota: 100 << 20}, []etcd.Alarm{{Member: 1, Type: etcd.NoSpace}}
	loose := etcd.Space{Size: 90 << 20, InUse: 10 << 20, Quota: 100 << 20}
	fine := etcd.Space{Size: 30 << 20, InUse: 20 << 20, Quota: 100 << 20}
	three := []string{"a: up", "b: up", "c: up"}
	for _, tt := range []struct {
		name    string
		wanted  []string
		members []string // nil: three healthy ones
		spaces  map[string]etcd.Space
		alarms  []etcd.Alarm
		quota   int64
		again   bool
		want    string
	}{
		{"nothing", three, nil, map[string]etcd.Space{"a": fine, "b": fine, "c": fine}, nil, 0, false, "\n"},
		{"fragmented, the leader last", three, nil, map[string]etcd.Space{"a": loose, "b": fine, "c": loose}, nil, 0, false, `
1. c: defragment (90 MiB of quota 100 MiB), when all others healthy, then wait: healthy
2. a: defragment (90 MiB of quota 100 MiB), when all others healthy, then wait: healthy
`},
		{"fragmented, with other changes", []string{"a: restart", "b: quiet", "c: up"}, nil, map[string]etcd.Space{"b": loose}, nil, 0, false, `
1. b: apply without restart
2. a: apply with restart, when all others healthy, then wait: healthy
3. b: defragment (90 MiB of quota 100 MiB), when all others healthy, then wait: healthy
`},
		{"fragmented, and one that cannot be reached", []string{"a: up", "b: up", "c: unreachable"}, []string{"a: healthy", "b: healthy", "c: sick"},
			map[string]etcd.Space{"a": loose}, nil, 0, false, "\n"},
		{"fragmented, and a learner", []string{"a: up", "b: up"}, []string{"a: healthy", "b: learner, healthy"}, map[string]etcd.Space{"b": loose}, nil, 0, false, `
1. b: join (added before, not a full member yet), when a quorum is healthy, then wait: healthy
`},
		{"full", three, []string{"a: sick", "b: sick", "c: sick"}, map[string]etcd.Space{"a": full, "b": full, "c": full}, noSpace, 0, false, `
1. a: compact (forget old values), when a quorum serves reads
2. b: defragment (100 MiB of quota 100 MiB), when a quorum serves reads, then wait: serves reads
3. c: defragment (100 MiB of quota 100 MiB), when a quorum serves reads, then wait: serves reads
4. a: defragment (100 MiB of quota 100 MiB), when a quorum serves reads, then wait: serves reads
5. a: disarm (NOSPACE), when a quorum serves reads
`},
		{"full, and a learner", []string{"b: up", "c: up"}, []string{"a: learner, healthy", "b: sick", "c: sick"}, map[string]etcd.Space{"a": full, "b": full, "c": full}, noSpace, 0, false, `
1. b: compact (forget old values), when a quorum serves reads
2. b: defragment (100 MiB of quota 100 MiB), when a quorum serves reads, then wait: serves reads
3. c: defragment (100 MiB of quota 100 MiB), when a quorum serves reads, then wait: serves reads
4. b: disarm (NOSPACE), when a quorum serves reads
`},
		{"a quota that is too low", []string{"a: restart", "b: restart", "c: restart"}, nil, map[string]etcd.Space{"a": fine, "b": fine, "c": fine}, nil, 32, false, `
refusing to lower the quota of etcd to 32 MiB: the database of a has 30 MiB; set quota_mib to at least 34
`},
		{"full, and other changes wait", []string{"a: quiet", "b: restart", "c: empty", "d: empty"}, []string{"a: sick", "b: sick", "c: sick"},
			map[string]etcd.Space{"a": full, "b": fine}, noSpace, 0, false, `
1. a: apply without restart
2. a: compact (forget old values), when a quorum serves reads
3. b: defragment (30 MiB of quota 100 MiB), when a quorum serves reads, then wait: serves reads
4. a: defragment (100 MiB of quota 100 MiB), when a quorum serves reads, then wait: serves reads
5. a: disarm (NOSPACE), when a quorum serves reads
`},
		{"full, a stopped member and one that leaves", []string{"a: up", "b: stopped"}, []string{"a: sick", "b: sick", "c: healthy"},
			map[string]etcd.Space{"a": full, "c": full}, noSpace, 0, false, `
1. b: install (not running), then wait: serves reads
2. a: compact (forget old values), when a quorum serves reads
3. c: defragment (100 MiB of quota 100 MiB), when a quorum serves reads, then wait: serves reads
4. b: defragment (0 B), when a quorum serves reads, then wait: serves reads
5. a: defragment (100 MiB of quota 100 MiB), when a quorum serves reads, then wait: serves reads
6. a: disarm (NOSPACE), when a quorum serves reads
`},
		{"full, and a machine with data of a removed member", []string{"a: up", "b: stale"}, []string{"a: sick", "b: sick"},
			map[string]etcd.Space{"a": full}, noSpace, 0, false, `
1. a: compact (forget old values), when a quorum serves reads
2. a: defragment (100 MiB of quota 100 MiB), when a quorum serves reads, then wait: serves reads
3. a: disarm (NOSPACE), when a quorum serves reads
`},
		{"full, and the quota grows", []string{"a: restart", "b: restart", "c: restart"}, []string{"a: sick", "b: sick", "c: sick"},
			map[string]etcd.Space{"a": full, "b": full, "c": full}, noSpace, 200, false, `
1. b: apply with restart (larger quota), when all others serve reads, then wait: serves reads
2. c: apply with restart (larger quota), when all others serve reads, then wait: serves reads
3. a: apply with restart (larger quota), when all others serve reads, then wait: serves reads
4. a: disarm (NOSPACE), when a quorum serves reads
`},
		{"full, and the quota grows, but one cannot be reached", []string{"a: restart", "b: restart", "c: unreachable"}, []string{"a: sick", "b: sick", "c: sick"},
			map[string]etcd.Space{"a": full, "b": full}, noSpace, 200, false, `
1. a: compact (forget old values), when a quorum serves reads
2. b: defragment (100 MiB of quota 100 MiB), when a quorum serves reads, then wait: serves reads
3. a: defragment (100 MiB of quota 100 MiB), when a quorum serves reads, then wait: serves reads
4. a: disarm (NOSPACE), when a quorum serves reads
`},
		{"full again", three, nil, map[string]etcd.Space{"a": full, "b": full, "c": full}, noSpace, 0, true, `
refusing to go on: etcd raised the alarm NOSPACE again as soon as it was disarmed: something writes much to it; find out what (kubectl get --raw /metrics has apiserver_storage_objects), or raise quota_mib above 100, and apply again
`},
		{"corrupt", three, nil, map[string]etcd.Space{"a": fine}, []etcd.Alarm{{Type: etcd.Corrupt}, noSpace[0]}, 0, false, `
refusing to change etcd: it has the alarm CORRUPT: the data of the members differ, and nobody but you can tell which are right; ` + fleet.CorruptAdvice + `
`},
		{"unknown", three, nil, map[string]etcd.Space{"a": fine}, []etcd.Alarm{{Member: 2, Type: "SLOW"}}, 0, false, `
refusing to change etcd: it has an alarm that this provider does not know: SLOW; end it (etcdctl alarm list, etcdctl alarm disarm), then apply again
`},
		{"full, and nobody tells", three, nil, nil, noSpace, 0, false, `
refusing to end the alarm of etcd: no member tells how full its database is; apply again when they answer
`},
	} {
		t.Run(tt.name, func(t *testing.T) {
			if tt.members == nil {
				tt.members = []string{"a: healthy", "b: healthy", "c: healthy"}
			}
			f := clusterFacts{wanted: wantedMembers(t, tt.wanted...), formed: true, leader: "a", alarms: tt.alarms, spaces: tt.spaces, quota: 100 << 20, repaired: tt.again}
			f.members, f.healthy = clusterMembers(t, tt.members...)
			if tt.quota > 0 {
				f.quota = tt.quota << 20
			}
			if got := "\n" + outcome(planNext(f)); got != tt.want {
				t.Errorf("plan:%s\nwanted:%s", got, tt.want)
			}
		})
	}
}

// TestLearn: alarms count only if a member with a leader knows them, and spaces have a quota also
// where the member reports none.
func TestLearn(t *testing.T) {
	f := clusterFacts{wanted: wantedMembers(t, "a: up", "b: up")}
	f.learn(map[string]etcd.Status{
		"a": {ID: 1, Leader: 1, Version: "3.6.16", StorageVersion: "3.6.0", DBSize: 5, Alarms: []etcd.Alarm{{Member: 2, Type: etcd.NoSpace}}},
		"b": {ID: 2, Leader: 0, Version: "3.6.16", Quota: 9, Alarms: []etcd.Alarm{{Member: 1, Type: etcd.Corrupt}}},
		"c": {ID: 3, Leader: 1, Version: "3.6.16", Quota: 9}, // it leaves
	}, 7)
	if f.leader != "a" || len(f.alarms) != 1 || f.alarms[0].Type != etcd.NoSpace || f.quota != 7 {
		t.Errorf("leader %q, alarms %v, quota %d", f.leader, f.alarms, f.quota)
	}
	if f.spaces["a"] != (etcd.Space{Size: 5, Quota: 7}) || f.spaces["b"].Quota != 9 || len(f.spaces) != 3 {
		t.Errorf("spaces %v", f.spaces)
	}
	if f.wanted[0].release.String() != "3.6.16" || f.wanted[0].storage.String() != "3.6.0" || !strings.HasPrefix(f.wanted[1].release.String(), "3.6") {
		t.Errorf("releases %v", f.wanted)
	}
}
