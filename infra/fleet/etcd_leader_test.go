package fleet

import (
	"context"
	"strings"
	"testing"

	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/etcd"
)

// clusterOf makes the members of a cluster: "a" is healthy, "b-" is unhealthy, "c*" is a healthy
// learner.
func clusterOf(words ...string) ([]etcd.Member, map[etcd.ID]bool) {
	var members []etcd.Member
	healthy := map[etcd.ID]bool{}
	for i, w := range words {
		name := strings.TrimRight(w, "-*")
		members = append(members, etcd.Member{ID: etcd.ID(i + 1), Name: name, Learner: w == name+"*"})
		healthy[etcd.ID(i+1)] = w != name+"-"
	}
	return members, healthy
}

// TestMayStopFirst checks that a member may be stopped before its removal only when the remaining
// members have a quorum for the removal.
func TestMayStopFirst(t *testing.T) {
	for _, tt := range []struct {
		name    string
		members []string // the first one leaves
		want    bool
	}{
		{"one of one", []string{"a"}, false},
		{"one of two", []string{"a", "b"}, false},
		{"one of three", []string{"a", "b", "c"}, true},
		{"one of three, another is down", []string{"a", "b", "c-"}, false},
		{"one of four", []string{"a", "b", "c", "d"}, true},
		{"one of four, another is down", []string{"a", "b", "c", "d-"}, false},
		{"one of five, another is down", []string{"a", "b", "c", "d", "e-"}, true},
		{"one of two beside a learner", []string{"a", "b", "l*"}, false},
		{"a learner beside one", []string{"l*", "a"}, true},
	} {
		members, healthy := clusterOf(tt.members...)
		if got := MayStopFirst(members, healthy, members[0].ID); got != tt.want {
			t.Errorf("%s: %v, wanted %v", tt.name, got, tt.want)
		}
	}
}

// TestSettled checks that Settled waits for every member that was healthy before, and for no other.
func TestSettled(t *testing.T) {
	members, before := clusterOf("a", "b", "c-")
	for _, tt := range []struct {
		now  []string
		want string
	}{
		{[]string{"a", "b", "c-"}, ""},
		{[]string{"a", "b-", "c"}, "etcd member b does not answer"},
	} {
		_, now := clusterOf(tt.now...)
		err := Flushed(members, before, func(context.Context, []etcd.Member) map[etcd.ID]bool { return now })(t.Context())
		if got := ""; err != nil && err.Error() != tt.want || err == nil && tt.want != got {
			t.Errorf("%q: %v, wanted %q", tt.now, err, tt.want)
		}
	}
}
