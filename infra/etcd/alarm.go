package etcd

import (
	"cmp"
	"fmt"
	"slices"
)

// AlarmType is the kind of an alarm, in etcd's own words (AlarmType in etcd's rpc.proto). A later
// release of etcd may know more of them than those listed here.
type AlarmType string

const (
	// NoSpace means that the database of a member has reached its quota. All members then refuse to
	// store anything, and still delete.
	NoSpace AlarmType = "NOSPACE"
	// Corrupt means that the data of a member differ from those of the others. All members then
	// refuse every change, and still answer reads.
	Corrupt AlarmType = "CORRUPT"
)

// Alarm is an alarm that one member has caused. All members know of it and obey it. It stays until
// somebody disarms it, also when its cause is gone.
type Alarm struct {
	Member ID // 0: etcd cannot tell which member it is, which happens with Corrupt
	Type   AlarmType
}

// compareAlarms orders alarms by their member: etcd returns them in random order.
func compareAlarms(a, b Alarm) int {
	return cmp.Or(cmp.Compare(a.Member, b.Member), cmp.Compare(a.Type, b.Type))
}

// Alarms returns every alarm once of what several members know, by the id of its member.
func Alarms(known ...[]Alarm) []Alarm {
	all := slices.Concat(known...)
	slices.SortFunc(all, compareAlarms)
	return slices.Compact(all)
}

// Of reports whether the alarm makes a member unhealthy: it is the member's, or it may be.
func (a Alarm) Of(member ID) bool { return a.Member == member || a.Member == 0 }

// AlarmError says that a member serves reads and has raised an alarm.
type AlarmError struct {
	Endpoint string
	Alarm    Alarm
}

func (e *AlarmError) Error() string {
	return fmt.Sprintf("etcd %s has raised the alarm %s", e.Endpoint, e.Alarm.Type)
}
