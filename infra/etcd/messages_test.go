package etcd

import (
	"slices"
	"testing"

	"go.etcd.io/etcd/api/v3/etcdserverpb"
)

func TestAlarmsOf(t *testing.T) {
	t.Parallel()
	const id = 0x8e9e05c52164694d
	for _, tt := range []struct {
		name     string
		messages []string
		want     []Alarm
	}{
		{"none", nil, nil},
		{"no alarm", []string{"etcdserver: no leader", ""}, nil},
		{"etcd 3.6", []string{"memberID:10276657743932975437 alarm:NOSPACE "}, []Alarm{{id, NoSpace}}},
		{"two spaces", []string{"memberID:10276657743932975437  alarm:CORRUPT"}, []Alarm{{id, Corrupt}}},
		{"no member", []string{"alarm:CORRUPT "}, []Alarm{{0, Corrupt}}},
		{"one of a later release", []string{"memberID:1 alarm:SLOW "}, []Alarm{{1, "SLOW"}}},
		{"several, in random order", []string{"memberID:2 alarm:NOSPACE ", "etcdserver: no leader", "memberID:1 alarm:NOSPACE ", "memberID:1 alarm:CORRUPT "},
			[]Alarm{{1, Corrupt}, {1, NoSpace}, {2, NoSpace}}},
		{"text form of this client", []string{(&etcdserverpb.AlarmMember{MemberID: id, Alarm: etcdserverpb.AlarmType_NOSPACE}).String(),
			(&etcdserverpb.AlarmMember{Alarm: etcdserverpb.AlarmType_CORRUPT}).String()}, []Alarm{{0, Corrupt}, {id, NoSpace}}},
		{"a number that is no id", []string{"memberID:99999999999999999999 alarm:NOSPACE "}, nil},
	} {
		if got := alarmsOf(tt.messages); !slices.Equal(got, tt.want) {
			t.Errorf("%s: %v, wanted %v", tt.name, got, tt.want)
		}
	}
}

// TestAlarmNames: the names are etcd's.
func TestAlarmNames(t *testing.T) {
	t.Parallel()
	for name, want := range map[AlarmType]etcdserverpb.AlarmType{NoSpace: etcdserverpb.AlarmType_NOSPACE, Corrupt: etcdserverpb.AlarmType_CORRUPT} {
		if string(name) != want.String() {
			t.Errorf("%s is called %s by etcd", name, want)
		}
	}
	if got := len(etcdserverpb.AlarmType_name); got != 3 {
		t.Errorf("etcd knows %d types of alarms, wanted none, NOSPACE and CORRUPT", got)
	}
}
