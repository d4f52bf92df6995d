package maintenance

import (
	"errors"
	"strings"
	"testing"

	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/component"
	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/etcd"
	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/fleet"
	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/patience"
)

// TestAlarmedMember: a member that answers reads and has an alarm counts as serving and not as
// healthy. Its machine is not stopped, but may be terminated.
func TestAlarmedMember(t *testing.T) {
	t.Parallel()
	c := newController(t, component.EtcdUnit, component.APIServerUnit)
	d := c.duty(t)
	v := c.join(t, d)
	v.mu.Lock()
	v.down, v.alarms = map[string]bool{}, []string{"memberID:2 alarm:NOSPACE "} // every member says that it is member 2
	v.mu.Unlock()
	ctx := patience.With(t.Context(), 30)
	p, err := d.knownPlace(ctx, nobody)
	if err != nil || len(p.others) != 2 {
		t.Fatalf("%+v, %v", p, err)
	}
	healthy, alarms := d.ask(ctx, p.members, (*etcd.Client).Health)
	serving := d.serving(ctx, p.members)
	for _, m := range p.members {
		if healthy[m.ID] || alarms[m.ID] != etcd.NoSpace || !serving[m.ID] {
			t.Errorf("%s: healthy %v, alarm %q, serves %v", m.Label(), healthy[m.ID], alarms[m.ID], serving[m.ID])
		}
	}
	err = d.Suspend(ctx, nobody)
	var refused *fleet.GuardError
	if !errors.As(err, &refused) || !strings.Contains(err.Error(), "refusing to stop controller-0: its etcd member has the alarm NOSPACE; end the alarm first") {
		t.Errorf("stopping: %v", err)
	}
	if err := d.guardAlarm(ctx, moves, p.self); err == nil {
		t.Error("the data would come back with their alarm")
	}
	if err := d.guardAlarm(ctx, leaves, p.self); err != nil {
		t.Errorf("leaving: %v", err)
	}
	if !c.runs(component.EtcdUnit) || !c.runs(component.APIServerUnit) {
		t.Errorf("it did %q", c.deeds())
	}
}
