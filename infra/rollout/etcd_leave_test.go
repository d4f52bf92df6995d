package rollout

import (
	"context"
	"testing"

	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/etcd"
)

// TestMayStopFirst: a member may be stopped before it is removed only when
// those that agree on its removal can do without it.
func TestMayStopFirst(t *testing.T) {
	for _, tt := range []struct {
		name    string
		members []string // the first one leaves
		want    bool
	}{
		{"one of one", []string{"a: healthy"}, false},
		{"one of two", []string{"a: healthy", "b: healthy"}, false},
		{"one of three", []string{"a: healthy", "b: healthy", "c: healthy"}, true},
		{"one of three, another is down", []string{"a: healthy", "b: healthy", "c: sick"}, false},
		{"one of four", []string{"a: healthy", "b: healthy", "c: healthy", "d: healthy"}, true},
		{"one of four, another is down", []string{"a: healthy", "b: healthy", "c: healthy", "d: sick"}, false},
		{"one of five, another is down", []string{"a: healthy", "b: healthy", "c: healthy", "d: healthy", "e: sick"}, true},
		{"one of two beside a learner", []string{"a: healthy", "b: healthy", "l: learner, healthy"}, false},
		{"a learner beside one", []string{"l: learner, healthy", "a: healthy"}, true},
	} {
		members, healthy := clusterMembers(t, tt.members...)
		if got := mayStopFirst(members, healthy, members[0].ID); got != tt.want {
			t.Errorf("%s: %v, wanted %v", tt.name, got, tt.want)
		}
	}
}

// TestSettled: nothing is under way once everybody has answered who was healthy
// before; who was not is not waited for.
func TestSettled(t *testing.T) {
	members, before := clusterMembers(t, "a: healthy", "b: healthy", "c: sick")
	for _, tt := range []struct {
		now  []string
		want string
	}{
		{[]string{"a: healthy", "b: healthy", "c: sick"}, ""},
		{[]string{"a: healthy", "b: sick", "c: healthy"}, "etcd member b does not answer"},
	} {
		_, now := clusterMembers(t, tt.now...)
		err := settled(members, before, func(context.Context, []etcd.Member) map[etcd.ID]bool { return now })(t.Context())
		if got := ""; err != nil && err.Error() != tt.want || err == nil && tt.want != got {
			t.Errorf("%q: %v, wanted %q", tt.now, err, tt.want)
		}
	}
}
