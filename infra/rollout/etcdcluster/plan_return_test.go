package etcdcluster

import (
	"strings"
	"testing"
)

// TestLeaderRestartsLast checks that the leadership changes once, whatever the members' names.
func TestLeaderRestartsLast(t *testing.T) {
	for leader, want := range map[string]string{"a": "bca", "b": "acb", "c": "abc", "": "abc"} {
		members, healthy := clusterMembers(t, "a: healthy", "b: healthy", "c: healthy")
		plan, err := planNext(clusterFacts{wanted: wantedMembers(t, "a: restart", "b: restart", "c: restart"),
			members: members, healthy: healthy, formed: true, leader: leader})
		if err != nil {
			t.Fatal(err)
		}
		var got string
		for _, batch := range plan {
			for _, s := range batch {
				got += s.Machine
			}
		}
		if got != want {
			t.Errorf("with %q leading they restart as %s, wanted %s", leader, got, want)
		}
	}
}

// TestReplacedDataOfAnotherCluster: after a restore from one member the others have data of the
// cluster before, which restore_from.replace_data allows to be deleted.
func TestReplacedDataOfAnotherCluster(t *testing.T) {
	members, healthy := clusterMembers(t, "a: healthy")
	got := "\n" + outcome(planNext(clusterFacts{wanted: wantedMembers(t, "a: up", "b: foreign", "c: empty"),
		members: members, healthy: healthy, formed: true, cluster: 1, replaceData: true}))
	want := `
1. b: join (new member), when a quorum is healthy, then wait: healthy
2. c: join (new member), when a quorum is healthy, then wait: healthy
`
	if got != want {
		t.Errorf("plan:%s\nwanted:%s", got, want)
	}
}

// TestPlanEtcdReturn: what happens to a machine with data on which etcd has not run yet depends on
// whose data they are.
func TestPlanEtcdReturn(t *testing.T) {
	for _, tt := range []struct {
		name    string
		wanted  []string
		members []string // nil: no member answers
		want    string
	}{
		{"a machine replaced, with its data", []string{"a: up", "b: returned", "c: up"}, []string{"a: healthy", "b: sick", "c: healthy"}, `
1. b: install (not running, has the data of member 2), then wait: healthy
`},
		{"a machine replaced, with its data, at another address", []string{"a: up", "b: returned", "c: restart"}, []string{"a: healthy", "b: sick, elsewhere", "c: healthy"}, `
1. b: move (member 2 has its data, and listened on https://192.0.2.1:2380 before), when a quorum is healthy, then wait: healthy
2. c: apply with restart, when all others healthy, then wait: healthy
`},
		{"with its data, which nobody could read, at another address", []string{"a: up", "b: stopped", "c: up"}, []string{"a: healthy", "b: sick, elsewhere", "c: healthy"}, `
1. b: leave (member 2 listens on https://192.0.2.1:2380, wanted https://b:2380), when the rest has a quorum
2. b: join (with its new address), when a quorum is healthy, then wait: healthy
`},
		{"with data of a removed member", []string{"a: up", "b: stale", "c: up"}, []string{"a: healthy", "b: sick", "c: healthy"}, `
1. b: leave (member 2 has lost its data: the data on the machine belong to member 9), when the rest has a quorum
2. b: join (in place of member 2), when a quorum is healthy, then wait: healthy
`},
		{"with data of a removed member, while another is down", []string{"a: up", "b: stale", "c: unreachable"}, []string{"a: healthy", "b: sick", "c: sick"}, `
refusing to remove etcd member b: 1 of the 2 voters that would remain are healthy, and a quorum is 2; repair or bring back the other members first, and replace one machine at a time
`},
		{"removed, its data are left", []string{"a: up", "b: stale", "c: up"}, []string{"a: healthy", "c: healthy"}, `
1. b: join (new member), when a quorum is healthy, then wait: healthy
`},
		{"announced, data of a removed member are left", []string{"a: up", "b: stale", "c: up"}, []string{"a: healthy", "b: announced", "c: healthy"}, `
1. b: join (added before, not a full member yet), when a quorum is healthy, then wait: healthy
`},
		{"a learner replaced, with its data", []string{"a: up", "b: returned", "c: up"}, []string{"a: healthy", "b: sick, learner", "c: healthy"}, `
1. b: join (added before, not a full member yet), when a quorum is healthy, then wait: healthy
`},
		{"with data of another cluster", []string{"a: up", "b: foreign", "c: up"}, []string{"a: healthy", "b: sick", "c: healthy"}, `
refusing to make b a member of etcd: b has data of the etcd cluster 7, and this is the etcd cluster 1; attach the right volume, or, if nobody needs the data, stop etcd on b, delete /var/lib/etcd/member there, and apply again
`},
		{"new, with data of another cluster", []string{"a: up", "b: foreign", "c: up"}, []string{"a: healthy", "c: healthy"}, `
refusing to make b a member of etcd: b has data of the etcd cluster 7, and this is the etcd cluster 1; attach the right volume, or, if nobody needs the data, stop etcd on b, delete /var/lib/etcd/member there, and apply again
`},
		{"two replaced, with their volumes swapped", []string{"a: up", "b: third", "c: returned", "d: up", "e: up"},
			[]string{"a: healthy", "b: sick", "c: sick", "d: healthy", "e: healthy"}, `
refusing to make b a member of etcd: b has the data of member 3, which belongs to c; attach the right volume, or, if nobody needs the data, stop etcd on b, delete /var/lib/etcd/member there, and apply again
`},
		{"with the data of one that cannot be reached", []string{"a: up", "b: third", "c: unreachable", "d: up", "e: up"},
			[]string{"a: healthy", "b: sick", "c: sick", "d: healthy", "e: healthy"}, `
refusing to make b a member of etcd: b has the data of member 3, which belongs to c; attach the right volume, or, if nobody needs the data, stop etcd on b, delete /var/lib/etcd/member there, and apply again
`},
		{"renamed, with its data", []string{"a: up", "b: up", "d: third"}, []string{"a: healthy", "b: healthy", "c: sick"}, `
1. c: leave (not wanted any more), when the rest has a quorum
2. d: join (new member), when a quorum is healthy, then wait: healthy
`},
		{"all replaced, with their data", []string{"a: stopped", "b: returned", "c: stopped"}, nil, `
1. a: install (start the members that have data), then wait: serves reads
1. b: install (start the members that have data), then wait: serves reads
1. c: install (start the members that have data), then wait: serves reads
`},
	} {
		t.Run(tt.name, func(t *testing.T) {
			f := clusterFacts{wanted: wantedMembers(t, tt.wanted...), formed: true, cluster: 1}
			if tt.members != nil {
				f.members, f.healthy = clusterMembers(t, tt.members...)
			}
			if got := "\n" + outcome(planNext(f)); got != tt.want {
				t.Errorf("plan:%s\nwanted:%s", got, tt.want)
			}
		})
	}
}

// TestPlanEtcdReturnUnknown: while it is not known which cluster answers, only data that are the
// machine's own according to the members are used, and none are deleted.
func TestPlanEtcdReturnUnknown(t *testing.T) {
	const refused = `
refusing to make b a member of etcd: b has data of the etcd cluster 1, and the id of this cluster is not known; apply again when its members answer
`
	for _, tt := range []struct {
		b       string
		replace bool
		want    string
	}{
		{"stale", false, refused},
		{"third", false, refused},
		{"returned", false, `
1. b: install (not running, has the data of member 2), then wait: healthy
`},
		{"stale", true, `
1. b: leave (member 2 has lost its data: the data on the machine belong to member 9), when the rest has a quorum
2. b: join (in place of member 2), when a quorum is healthy, then wait: healthy
`},
	} {
		f := clusterFacts{wanted: wantedMembers(t, "a: up", "b: "+tt.b, "c: up"), formed: true, replaceData: tt.replace}
		f.members, f.healthy = clusterMembers(t, "a: healthy", "b: sick", "c: healthy")
		if got := "\n" + outcome(planNext(f)); got != tt.want {
			t.Errorf("%s: plan:%s\nwanted:%s", tt.b, got, tt.want)
		}
	}
}

// TestPlanEtcdStartedBefore: a machine that says that it has been a member keeps the others from
// forming a new cluster, if no record says that there is one.
func TestPlanEtcdStartedBefore(t *testing.T) {
	for _, tt := range []struct {
		name   string
		wanted []string
		formed bool
		want   string
	}{
		{"one old machine beside new ones", []string{"a: stopped, started", "b: empty", "c: empty"}, false, `
refusing to start a new cluster of etcd: a has been a member of an existing cluster, as the file /etc/etcd/bootstrap.env there says, and b, c have no data; if it is the same cluster, and the Terraform state was lost, list the machines of all its members in hosts, or import it; if they are gone, restore the cluster with restore_from = { member = "a" }, or from a snapshot; if nobody needs the data, remove a from hosts, or stop etcd and delete /etc/etcd/bootstrap.env and /var/lib/etcd/member there
`},
		{"it still runs, without a quorum", []string{"a: up, started", "b: empty", "c: empty"}, false, `
refusing to start a new cluster of etcd: a has been a member of an existing cluster, as the file /etc/etcd/bootstrap.env there says, and b, c have no data; if it is the same cluster, and the Terraform state was lost, list the machines of all its members in hosts, or import it; if they are gone, restore the cluster with restore_from = { member = "a" }, or from a snapshot; if nobody needs the data, remove a from hosts, or stop etcd and delete /etc/etcd/bootstrap.env and /var/lib/etcd/member there
`},
		{"the others are away, but for one", []string{"a: stopped, started", "b: empty", "c: unreachable"}, false, `
refusing to start a new cluster of etcd: a has been a member of an existing cluster, as the file /etc/etcd/bootstrap.env there says, and b has no data; if it is the same cluster, and the Terraform state was lost, list the machines of all its members in hosts, or import it; if they are gone, restore the cluster with restore_from = { member = "a" }, or from a snapshot; if nobody needs the data, remove a from hosts, or stop etcd and delete /etc/etcd/bootstrap.env and /var/lib/etcd/member there
`},
		{"all have lost their data", []string{"a: empty, started", "b: empty, started", "c: empty"}, false, `
refusing to start a new cluster of etcd: a, b have been members of an existing cluster, as the file /etc/etcd/bootstrap.env there says, and a, b, c have no data; if it is the same cluster, and the Terraform state was lost, list the machines of all its members in hosts, or import it; if they are gone, restore the cluster with restore_from from a snapshot; if nobody needs the data, remove a, b from hosts, or stop etcd and delete /etc/etcd/bootstrap.env and /var/lib/etcd/member there
`},
		{"enough have their data", []string{"a: stopped, started", "b: stopped, started", "c: empty"}, false, `
1. a: install (start the members that have data), then wait: serves reads
1. b: install (start the members that have data), then wait: serves reads
`},
		{"it is recorded", []string{"a: stopped, started", "b: empty", "c: empty"}, true, `
refusing to start etcd: the cluster has lost its quorum (members with data: a; without: b, c; unreachable: none); bring the unreachable machines back, or restore the cluster with restore_from of k8s_etcd_cluster; starting empty members in their place would lose data
`},
	} {
		t.Run(tt.name, func(t *testing.T) {
			if got := "\n" + outcome(planNext(clusterFacts{wanted: wantedMembers(t, tt.wanted...), formed: tt.formed})); got != tt.want {
				t.Errorf("plan:%s\nwanted:%s", got, tt.want)
			}
		})
	}
}

// TestAdviceAfterRestore: the restore that is configured is not done twice, so the advice is another one.
func TestAdviceAfterRestore(t *testing.T) {
	for restored, want := range map[bool]string{
		false: "restore the cluster with restore_from of k8s_etcd_cluster",
		true:  "restore the cluster with another trigger, snapshot or member in restore_from of k8s_etcd_cluster (the present one is done, and is not done again)",
	} {
		_, err := planNext(clusterFacts{wanted: wantedMembers(t, "a: empty", "b: empty", "c: stopped"), formed: true, restored: restored})
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("restored %t: %v", restored, err)
		}
	}
}
