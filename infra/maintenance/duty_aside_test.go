package maintenance

import (
	"context"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/component"
	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/patience"
)

// TestStepAside: the member is stopped and stays in the cluster. If the machine is not terminated
// after all, its member runs again.
func TestStepAside(t *testing.T) {
	t.Parallel()
	c := newController(t, component.EtcdUnit)
	d := c.duty(t)
	v := c.join(t, d)
	v.leader, v.down = 3, nil
	if err := d.StepAside(patience.With(t.Context(), 30), nobody); err != nil {
		t.Fatal(err)
	}
	if want := []string{"note " + component.EtcdUnit, "stop " + component.EtcdUnit}; !slices.Equal(c.deeds(), want) || len(v.names()) != 3 {
		t.Errorf("it did %q, members %v", c.deeds(), v.names())
	}
	d.Restore(t.Context(), c.Host)
	if !c.runs(component.EtcdUnit) || c.note() != nil {
		t.Errorf("it did %q, noted %v", c.deeds(), c.note())
	}
}

// TestStepAsideRefused: the member keeps running if the others are no quorum of all voters. A
// member that leaves makes the quorum smaller, one that returns does not.
func TestStepAsideRefused(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name    string
		members int
		down    []string
		refused string
	}{
		{"another is down", 3, []string{"10.240.0.12:2379"}, "deadline exceeded"},
		{"it is one of two", 2, nil, "refusing to terminate controller-0: etcd would lose its quorum: 1 of 2 voters would be healthy, and a quorum is 2"},
		{"it is alone", 1, nil, ""},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			c := newController(t, component.EtcdUnit)
			d := c.duty(t)
			v := c.join(t, d)
			v.leader, v.down, v.members = 3, map[string]bool{}, v.members[:tt.members]
			ctx := patience.With(t.Context(), 30)
			for _, address := range tt.down {
				v.down[address] = true
				short, cancel := context.WithTimeout(t.Context(), 3*time.Second) // the guard waits for one that is down
				defer cancel()
				ctx = short
			}
			err := d.StepAside(ctx, nobody)
			refused := tt.refused != ""
			if (err != nil) != refused || refused && !strings.Contains(err.Error(), tt.refused) {
				t.Errorf("%v, wanted %q", err, tt.refused)
			}
			if c.runs(component.EtcdUnit) != refused || len(v.names()) != tt.members {
				t.Errorf("it did %q, members %v", c.deeds(), v.names())
			}
		})
	}
}

// TestStepAsideContinued: a killed process has stopped the member. The next one asks the others
// before the machine ends, since the start does not follow at once.
func TestStepAsideContinued(t *testing.T) {
	t.Parallel()
	c, d, v := killed(t)
	if err := d.StepAside(patience.With(t.Context(), 30), nobody); err != nil || len(v.names()) != 3 || c.runs(component.EtcdUnit) {
		t.Errorf("%v, members %v; it did %q", err, v.names(), c.deeds())
	}
	c, d, v = killed(t)
	v.mu.Lock()
	v.down["10.240.0.12:2379"] = true
	v.mu.Unlock()
	ctx, cancel := context.WithTimeout(t.Context(), 3*time.Second)
	defer cancel()
	if err := d.StepAside(ctx, nobody); err == nil || !c.runs(component.EtcdUnit) || c.note() != nil {
		t.Errorf("%v; it did %q, noted %v", err, c.deeds(), c.note())
	}
}
