package rollout

import "testing"

// TestLeaderRestartsLast checks that the leadership changes once, whatever the members' names.
func TestLeaderRestartsLast(t *testing.T) {
	for leader, want := range map[string]string{"a": "bca", "b": "acb", "c": "abc", "": "abc"} {
		members, healthy := clusterMembers(t, "a: healthy", "b: healthy", "c: healthy")
		plan, err := planEtcd(etcdFacts{wanted: wantedMembers(t, "a: restart", "b: restart", "c: restart"),
			members: members, healthy: healthy, formed: true, leader: leader})
		if err != nil {
			t.Fatal(err)
		}
		var got string
		for _, stage := range plan {
			for _, s := range stage {
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
	got := "\n" + outcome(planEtcd(etcdFacts{wanted: wantedMembers(t, "a: up", "b: foreign", "c: empty"),
		members: members, healthy: healthy, formed: true, cluster: 1, replaceData: true}))
	want := `
1. b: join (new member), when a quorum is healthy, then wait: healthy
2. c: join (new member), when a quorum is healthy, then wait: healthy
`
	if got != want {
		t.Errorf("plan:%s\nwanted:%s", got, want)
	}
}
