package fleet

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
)

// SameMachine reports whether two targets are the same machine: by the ids of their instances, or else by an address or the
// SSH host key. A machine that was installed again at its address counts as the same. A key that several
// targets of one list have does not count: such machines were copied with their disks.
func SameMachine(a, b Target, lists ...[]Target) bool {
	return a.SamePlace(b) || (a.Node.InstanceID == "" || b.Node.InstanceID == "") && a.sharesKey(b) && !copied(a, lists)
}

// SamePlace is [SameMachine] without the host key.
func (t Target) SamePlace(o Target) bool {
	if t.Node.InstanceID != "" && o.Node.InstanceID != "" {
		return t.Node.InstanceID == o.Node.InstanceID
	}
	return t.Host.Address == o.Host.Address && cmp.Or(t.Host.Port, 22) == cmp.Or(o.Host.Port, 22) ||
		t.Node.PrivateIP.IsValid() && t.Node.PrivateIP == o.Node.PrivateIP
}

// copied reports whether several targets of one list have a host key of t.
func copied(t Target, lists [][]Target) bool {
	return slices.ContainsFunc(lists, func(list []Target) bool {
		n := 0
		for _, o := range list {
			if o.sharesKey(t) {
				n++
			}
		}
		return n > 1
	})
}

func (t Target) sharesKey(o Target) bool {
	return slices.ContainsFunc(t.Host.HostKeys, func(key string) bool {
		key = withoutComment(key)
		return key != "" && slices.ContainsFunc(o.Host.HostKeys, func(other string) bool { return withoutComment(other) == key })
	})
}

// withoutComment returns the type and the key of a public key.
func withoutComment(key string) string {
	fields := strings.Fields(key)
	return strings.Join(fields[:min(len(fields), 2)], " ")
}

// Former returns the target under a name that no machine has. It is for a machine whose name another
// machine has now.
func (t Target) Former() Target {
	t.Node.Name = fmt.Sprintf("%s at %s", t.Node.Name, t.Host.Address)
	t.Host.Name = t.Node.Name
	return t
}

// Leaving returns the targets of prior whose names are not wanted any more.
func Leaving(want, prior []Target) []Target {
	return slices.DeleteFunc(slices.Clone(prior), func(p Target) bool { return named(want, p.Name()) >= 0 })
}

// Superseded returns the targets of prior that are no longer machines of want, and whose names other
// machines of want have. It leaves out EC2 instances: whoever has made one ends it.
func Superseded(want, prior []Target) []Target {
	return slices.DeleteFunc(slices.Clone(prior), func(p Target) bool {
		return p.Node.InstanceID != "" || named(want, p.Name()) < 0 || slices.ContainsFunc(want, func(t Target) bool { return SameMachine(p, t, want, prior) })
	})
}

func named(targets []Target, name string) int {
	return slices.IndexFunc(targets, func(t Target) bool { return t.Name() == name })
}

// Rename is a machine that would get another name.
type Rename struct{ From, To Target }

// Renamed returns the machines of prior that have other names in want. It recognises a machine by its instance,
// or by its host key. If several machines have one key, because they were copied with their disks, the
// private address must be the same too.
func Renamed(want, prior []Target) []Rename {
	var out []Rename
	for _, to := range want {
		for _, from := range prior {
			if from.Name() != to.Name() && from.Name() != "" && to.Name() != "" && identical(from, to, want, prior) {
				out = append(out, Rename{from, to})
			}
		}
	}
	return out
}

func identical(a, b Target, lists ...[]Target) bool {
	switch {
	case a.Node.InstanceID != "" && b.Node.InstanceID != "":
		return a.Node.InstanceID == b.Node.InstanceID
	case !a.sharesKey(b):
		return false
	}
	return !copied(a, lists) || a.Node.PrivateIP.IsValid() && a.Node.PrivateIP == b.Node.PrivateIP
}

// Except returns targets without those of the given names.
func Except(targets []Target, names []string) []Target {
	return slices.DeleteFunc(slices.Clone(targets), func(t Target) bool { return slices.Contains(names, t.Node.Name) })
}
