package etcd

import (
	"regexp"
	"strconv"
)

// Messages of etcd that carry information in no field.

// alarmText matches an alarm in the errors of a member's status: the text form of etcd's
// AlarmMember, such as "memberID:10276657743932975437 alarm:NOSPACE ". A field that is zero is left
// out, and from etcd 3.7 on the number of spaces varies.
var alarmText = regexp.MustCompile(`^\s*(?:memberID:\s*(\d+)\s+)?alarm:\s*(\w+)\s*$`)

// alarmsOf returns the alarms in the errors of a member's status. The other error there is that the
// member knows no leader, which the status has in a field.
func alarmsOf(messages []string) []Alarm {
	var out []Alarm
	for _, message := range messages {
		found := alarmText.FindStringSubmatch(message)
		if found == nil {
			continue
		}
		alarm := Alarm{Type: AlarmType(found[2])}
		if found[1] != "" {
			id, err := strconv.ParseUint(found[1], 10, 64)
			if err != nil {
				continue
			}
			alarm.Member = ID(id)
		}
		out = append(out, alarm)
	}
	return Alarms(out)
}
