package status

import (
	"fmt"
	"slices"
	"testing"

	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/etcd"
	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/fleet"
)

// TestStatusAlarms: an alarm is reported once, for the machine whose member has caused it, also if
// only another member knows of it. Neither that member nor the cluster is healthy then.
func TestStatusAlarms(t *testing.T) {
	t.Parallel()
	const a, b, gone etcd.ID = 0xa, 0xb, 0xc
	member := func(machine string, id etcd.ID, alarms ...etcd.Alarm) EtcdMember {
		return EtcdMember{Machine: machine, ID: id.String(), Healthy: true, DBQuota: 1 << 30, alarms: alarms}
	}
	silent := EtcdMember{Machine: "controller-2"}
	const defrag = "; the next apply of the etcd cluster compacts, defragments and disarms, and if the data still fill the quota then, delete objects or raise it"
	const replace = "; no apply repairs that: " + fleet.CorruptAdvice
	for _, tt := range []struct {
		name      string
		members   []EtcdMember
		unhealthy []string
		want      []string
	}{
		{"none", []EtcdMember{member("controller-0", a), member("controller-1", b)}, nil, nil},
		{"both know it",
			[]EtcdMember{member("controller-1", b, etcd.Alarm{Member: b, Type: etcd.NoSpace}), member("controller-0", a, etcd.Alarm{Member: b, Type: etcd.NoSpace})},
			[]string{"controller-1"},
			[]string{"controller-1: NOSPACE: the database has reached its quota of 1073741824 bytes, and etcd stores nothing more" + defrag}},
		{"only another one knows it",
			[]EtcdMember{member("controller-0", a, etcd.Alarm{Member: b, Type: etcd.Corrupt}), member("controller-1", b)},
			[]string{"controller-1"},
			[]string{"controller-1: CORRUPT: the data of the members differ, and etcd refuses every change" + replace}},
		{"of a member that does not answer",
			[]EtcdMember{member("controller-0", a, etcd.Alarm{Member: gone, Type: etcd.NoSpace}), silent},
			[]string{"controller-2"},
			[]string{"etcd member c: NOSPACE: the database has reached its quota, and etcd stores nothing more" + defrag}},
		{"of no member",
			[]EtcdMember{member("controller-0", a, etcd.Alarm{Type: etcd.Corrupt}), silent},
			[]string{"controller-2"},
			[]string{"etcd: CORRUPT: the data of the members differ, and etcd refuses every change" + replace}},
		{"an unknown type",
			[]EtcdMember{member("controller-0", a, etcd.Alarm{Member: a, Type: "SLOW"})},
			[]string{"controller-0"},
			[]string{"controller-0: SLOW: etcd has raised an alarm that this version does not know"}},
		{"two, by machine",
			[]EtcdMember{member("controller-1", a, etcd.Alarm{Member: a, Type: "X"}, etcd.Alarm{Member: b, Type: "X"}), member("controller-0", b)},
			[]string{"controller-0", "controller-1"},
			[]string{"controller-0: X: etcd has raised an alarm that this version does not know", "controller-1: X: etcd has raised an alarm that this version does not know"}},
	} {
		answers := builder{fleet: &fleet.Fleet{}, status: Cluster{Etcd: tt.members}}
		s := answers.result()
		var words, unhealthy []string
		for _, a := range s.Alarms {
			words = append(words, fmt.Sprint(a))
		}
		for _, m := range s.Etcd {
			if !m.Healthy {
				unhealthy = append(unhealthy, m.Machine)
			}
		}
		if !slices.Equal(words, tt.want) || !slices.Equal(unhealthy, tt.unhealthy) {
			t.Errorf("%s: alarms %q, unhealthy %q; wanted %q, %q", tt.name, words, unhealthy, tt.want, tt.unhealthy)
		}
		if s.Healthy != (len(tt.unhealthy) == 0 && len(tt.want) == 0) {
			t.Errorf("%s: the cluster's health is %v", tt.name, s.Healthy)
		}
	}
	// The alarm alone makes the cluster unhealthy, also if etcd cannot tell its member.
	answers := builder{fleet: &fleet.Fleet{}, status: Cluster{Etcd: []EtcdMember{member("controller-0", a, etcd.Alarm{Type: etcd.Corrupt})}}}
	if s := answers.result(); s.Healthy || !s.Etcd[0].Healthy {
		t.Errorf("with an alarm of no member: cluster %v, member %v", s.Healthy, s.Etcd[0].Healthy)
	}
}
