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
