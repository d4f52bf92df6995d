package maintenance

import (
	"slices"

	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/etcd"
)

// Member is a member of etcd in a change that replaces or deletes machines.
type Member struct {
	Name     string
	Instance string // its machine's id in EC2; empty if the machine is not of EC2, or not made yet
	Unmade   bool   // the change makes its machine
	Stopped  bool   // its machine is off by itself, and not because its cluster is paused
}

// LostMember is a member whose machine does not stay.
type LostMember struct {
	Name    string
	Dropped bool // it is no member afterwards; otherwise another machine takes its place
	Ended   bool // its machine is gone: the change need not delete it
}

// LostMembers returns the members whose machines a change does not keep, in their order. gone reports
// whether an instance has been terminated.
func LostMembers(before, after []Member, gone func(instance string) bool) []LostMember {
	var lost []LostMember
	for _, was := range before {
		m := LostMember{Name: was.Name, Ended: gone(was.Instance)}
		i := slices.IndexFunc(after, func(n Member) bool { return n.Name == was.Name })
		switch {
		case i < 0:
			m.Dropped = true
		case was.Instance == "" || after[i].Instance == was.Instance:
			continue
		case !after[i].Unmade:
			m.Ended = true
		}
		lost = append(lost, m)
	}
	return lost
}

// Verdict says whether etcd keeps a quorum in a change of machines.
type Verdict int

const (
	QuorumKept      Verdict = iota
	QuorumGone              // the machines are gone already, so the change costs nothing
	QuorumIfStarted         // it would be kept if the stopped members ran: start them first
	QuorumLost              // the change deletes a quorum's machines before a new member can join
	NoMemberStays           // no member with the data is a member afterwards
	QuorumLeaves            // a quorum leaves one by one, so its machines have to run until then
)

// QuorumChange says which etcd members remain in a change of machines before a new member can join.
type QuorumChange struct {
	Verdict  Verdict
	Replaced []string // members that get another machine
	Dropped  []string // members that are none afterwards
	Stopped  []string // members whose machines stay, and do not run
	Members  int      // before the change
	Left     int      // members that run
	Quorum   int      // how many have to run
}

// CheckQuorum judges a change that replaces or deletes machines of members. Machines that are replaced are
// deleted before the first new member can join. Members that are dropped leave one by one while their
// machines exist. A member whose machine is stopped does not count: it is started by another change.
func CheckQuorum(before, after []Member, gone func(instance string) bool) QuorumChange {
	c := QuorumChange{Members: len(before), Quorum: etcd.Quorum(len(before))}
	ended := 0
	lost := LostMembers(before, after, gone)
	for _, m := range lost {
		switch {
		case m.Dropped:
			c.Dropped = append(c.Dropped, m.Name)
			continue
		case m.Ended:
			ended++
		}
		c.Replaced = append(c.Replaced, m.Name)
	}
	for _, m := range after {
		named := func(name string) bool { return name == m.Name }
		if m.Stopped && slices.ContainsFunc(before, func(b Member) bool { return named(b.Name) }) && !slices.ContainsFunc(lost, func(l LostMember) bool { return named(l.Name) }) {
			c.Stopped = append(c.Stopped, m.Name)
		}
	}
	running := c.Members - len(lost)
	c.Left = running - len(c.Stopped)
	switch {
	case len(lost) == 0 || c.Left >= c.Quorum:
	case len(c.Stopped) > 0 && len(c.Replaced) > 0 && ended < len(lost) && running >= c.Quorum:
		c.Verdict = QuorumIfStarted
	case ended == len(lost):
		c.Verdict = QuorumGone
	case len(c.Replaced) > 0:
		c.Verdict = QuorumLost
	case len(c.Dropped) == c.Members:
		c.Verdict = NoMemberStays
	default:
		c.Verdict = QuorumLeaves
	}
	return c
}
