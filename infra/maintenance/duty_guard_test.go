package maintenance

import (
	"errors"
	"strings"
	"testing"

	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/etcd"
	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/fleet"
)

// TestCheckVoters checks which voters may be taken down.
func TestCheckVoters(t *testing.T) {
	for _, test := range []struct {
		name    string
		ends    bool
		voters  int
		others  int // of the voters, without this one and the other leaving ones
		sick    []string
		refused string
	}{
		{"one of three is stopped", false, 3, 2, nil, ""},
		{"one of three leaves", true, 3, 2, nil, ""},
		{"one of three is stopped, another is down", false, 3, 2, []string{"c"}, "etcd would lose its quorum: 1 of 3 voters would be healthy, and a quorum is 2 (not healthy: c)"},
		{"one of three leaves, another is down", true, 3, 2, []string{"c"}, "1 of 2 voters would be healthy, and a quorum is 2"},
		{"one of five is stopped, another is down", false, 5, 4, []string{"c"}, "a second etcd member would be down (not healthy: c)"},
		{"one of five leaves, another leaves too", true, 5, 3, nil, ""},
		{"one of three leaves, another leaves too", true, 3, 1, nil, "lose its quorum"},
		{"one of two is stopped", false, 2, 1, nil, "lose its quorum"},
		{"one of two leaves", true, 2, 1, nil, ""},
	} {
		err := checkVoters("stop a", test.ends, test.voters, test.others, test.sick)
		var refused *fleet.GuardError
		switch {
		case test.refused == "" && err != nil:
			t.Errorf("%s: %v", test.name, err)
		case test.refused != "" && (!errors.As(err, &refused) || !strings.Contains(err.Error(), test.refused)):
			t.Errorf("%s: %v, wanted %q", test.name, err, test.refused)
		}
	}
}

// TestPlaceOf checks which members count when several leave.
func TestPlaceOf(t *testing.T) {
	members := []etcd.Member{{ID: 1, Name: "a"}, {ID: 2, Name: "b"}, {ID: 3, Name: "c"}, {ID: 4, Name: "new", Learner: true}}
	p := placeOf(members, "b", func(name string) bool { return name == "c" })
	if p.self.ID != 2 || len(p.others) != 1 || p.others[0].Name != "a" || p.voters != 3 {
		t.Errorf("self %v, others %v, %d voters", p.self, p.others, p.voters)
	}
}
