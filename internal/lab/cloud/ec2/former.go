package ec2

import (
	"reflect"
	"strings"
)

// changeOf is the name under which a change of a resource is hidden.
func changeOf(id string) string { return id + "/change" }

// keepFormer keeps the resources that a transaction has changed as they were before, if a fault hides the change,
// and returns the names of the changes. Of instances these are only changes of attributes: their states have
// times of their own. The caller has the lock.
func (c *Compute) keepFormer(t *tx, before *state) []string {
	if !c.faults.Hides(t.action) {
		return nil
	}
	var out []string
	keep := func(id string, old any) {
		c.former[id] = old
		out = append(out, changeOf(id))
	}
	changed(before.VPCs, t.st.VPCs, keep)
	changed(before.Subnets, t.st.Subnets, keep)
	changed(before.Gateways, t.st.Gateways, keep)
	changed(before.RouteTables, t.st.RouteTables, keep)
	changed(before.Interfaces, t.st.Interfaces, keep)
	changed(before.Addresses, t.st.Addresses, keep)
	if strings.HasPrefix(t.action, "ModifyInstance") {
		changed(before.Instances, t.st.Instances, keep)
	}
	return out
}

// changed calls f with the resources that are in both maps and differ.
func changed[T any](before, now map[string]*T, f func(id string, old any)) {
	for id, old := range before {
		if n := now[id]; n != nil && !reflect.DeepEqual(old, n) {
			f(id, old)
		}
	}
}

// asSeen returns a resource as it is shown: as it was before a change that a fault hides.
func asSeen[T any](t *tx, id string, now *T) *T {
	old, ok := t.c.former[id].(*T)
	if !ok || now == nil {
		return now
	}
	if t.c.faults.Hidden(changeOf(id), t.now) {
		return old
	}
	delete(t.c.former, id)
	return now
}
