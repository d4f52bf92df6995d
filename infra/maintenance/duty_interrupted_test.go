package maintenance

import (
	"context"
	"errors"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/component"
	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/finding"
	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/fleet"
	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/remote"
	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/remote/remotetest"
)

// controller is a machine with units and a note. It does what the scripts of deeds ask for.
type controller struct {
	*remotetest.Machine
	mu     sync.Mutex
	active map[string]bool
	noted  []string
	did    []string
	// before is called before a deed: "stop kube-apiserver.service". The next deed waits.
	before func(did string)
}

func newController(t *testing.T, units ...string) *controller {
	t.Helper()
	c := &controller{active: map[string]bool{}, before: func(string) {}}
	for _, u := range units {
		c.active[u] = true
	}
	c.Machine = remotetest.New(t, "controller-0", c.run)
	return c
}

func (c *controller) run(script string) (string, int) {
	arguments, body, _ := strings.Cut(script, "\n")
	words := strings.Fields(strings.NewReplacer("set -- ", "", "'", "").Replace(arguments))
	var did string
	switch {
	case strings.Contains(body, "read_named"):
		return c.find(), 0
	case strings.Contains(body, "Notes units"):
		did = "note " + strings.Join(words[1:], " ")
	case strings.Contains(body, "Removes the note"):
		did = "forget"
	case strings.Contains(body, "systemctl start --no-block"):
		did = "start " + strings.Join(words, " ")
	case strings.Contains(body, "systemctl stop \"$@\""):
		did = "stop " + strings.Join(words, " ")
	default:
		return "", 0 // a journal
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.before(did)
	c.did = append(c.did, did)
	verb, rest, _ := strings.Cut(did, " ")
	for _, u := range strings.Fields(rest) {
		if verb != "note" {
			c.active[u] = verb == "start"
		}
	}
	switch verb {
	case "note":
		c.noted = words[1:]
	case "forget":
		c.noted = nil
	}
	return "", 0
}

// find answers ReadNoted.
func (c *controller) find() string {
	c.mu.Lock()
	defer c.mu.Unlock()
	var out strings.Builder
	for _, u := range dutyUnits {
		if c.active[u.Unit] {
			out.WriteString("active " + u.Unit + "\x00\x00")
		}
		if slices.Contains(c.noted, u.Unit) {
			out.WriteString("noted " + u.Unit + "\x00\x00")
		}
	}
	return out.String()
}

func (c *controller) duty(t *testing.T) *Duty {
	t.Helper()
	pool := remote.NewPool(remote.Config{})
	t.Cleanup(func() { _ = pool.Close() })
	f := &fleet.Fleet{Pool: pool}
	d, err := Find(t.Context(), f, fleet.Target{Host: c.Host, Node: component.Node{Name: "controller-0"}})
	if err != nil {
		t.Fatal(err)
	}
	return d
}

func (c *controller) runs(unit string) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.active[unit]
}

func (c *controller) note() []string {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.noted
}

func (c *controller) deeds() []string {
	c.mu.Lock()
	defer c.mu.Unlock()
	return slices.Clone(c.did)
}

// steps runs the steps of Suspend that stop units. The guards and the hand-over need a cluster and
// are left out.
func steps(ctx context.Context, d *Duty) error {
	return d.orRestore(ctx, nil,
		func() error { return d.noteStop(ctx) },
		func() error { return d.stop(ctx, component.APIServerUnit) },
		func() error { return d.stop(ctx, component.EtcdUnit) })
}

// TestStopInterrupted interrupts the stop of a controller's units at every deed, before and after
// it takes effect: by a lost connection that comes back, and by the end of the context. Everything
// runs again and no note is left.
func TestStopInterrupted(t *testing.T) {
	t.Parallel()
	deeds := []string{"note", "stop " + component.APIServerUnit, "stop " + component.EtcdUnit}
	for _, deed := range deeds {
		for _, how := range []string{"connection lost", "cancelled"} {
			t.Run(deed+" "+how, func(t *testing.T) {
				t.Parallel()
				c := newController(t, component.EtcdUnit, component.APIServerUnit, component.SchedulerUnit)
				ctx, cancel := context.WithCancel(t.Context())
				defer cancel()
				var once sync.Once
				c.before = func(did string) {
					if !strings.HasPrefix(did, deed) {
						return
					}
					once.Do(func() {
						if how == "cancelled" {
							cancel()
							return
						}
						c.Leave()
						c.Return()
					})
				}
				d := c.duty(t)
				if err := steps(ctx, d); err == nil {
					t.Fatal("it was not interrupted")
				}
				if !c.runs(component.APIServerUnit) || !c.runs(component.EtcdUnit) || c.note() != nil || len(d.Notes()) > 0 {
					t.Errorf("API server runs %t, etcd runs %t, noted %v, notes %v; it did %q",
						c.runs(component.APIServerUnit), c.runs(component.EtcdUnit), c.note(), d.Notes(), c.deeds())
				}
			})
		}
	}
}

// TestStopContinued: what a killed process has stopped is known to the next one, which stops the
// rest, and starts all of it again if that fails.
func TestStopContinued(t *testing.T) {
	t.Parallel()
	c := newController(t, component.EtcdUnit, component.APIServerUnit)
	dying := c.duty(t)
	if err := errors.Join(dying.noteStop(t.Context()), dying.stop(t.Context(), component.APIServerUnit)); err != nil {
		t.Fatal(err)
	}
	d := c.duty(t)
	if !d.Interrupted() || d.Idle() || !slices.Equal(d.Units(), []string{component.EtcdUnit}) || !slices.Equal(d.all(), []string{component.EtcdUnit, component.APIServerUnit}) {
		t.Fatalf("interrupted %t, idle %t, active %v, all %v", d.Interrupted(), d.Idle(), d.Units(), d.all())
	}
	if d.does(component.APIServerUnit) {
		t.Error("guards would ask an API server that does not run")
	}
	d.Restore(t.Context(), c.Host)
	if !c.runs(component.APIServerUnit) || c.note() != nil {
		t.Errorf("it did %q, noted %v", c.deeds(), c.note())
	}
	if again := c.duty(t); again.Interrupted() {
		t.Error("it still counts as interrupted")
	}
}

// TestNotRestored: a machine that stays away is reported, and the units that are to run stay noted
// on it.
func TestNotRestored(t *testing.T) {
	t.Parallel()
	c := newController(t, component.EtcdUnit, component.APIServerUnit)
	c.before = func(did string) {
		if strings.HasPrefix(did, "stop") {
			c.Leave()
		}
	}
	d := c.duty(t)
	d.patience = 3 * restorePause / 2
	if err := steps(t.Context(), d); !fleet.Unreachable(err) {
		t.Errorf("the error is %v", err)
	}
	if notes := d.Notes(); len(notes) != 1 || notes[0].Problem != finding.NotStarted {
		t.Errorf("notes: %v", notes)
	}
	c.Return()
	if d := c.duty(t); !d.Interrupted() {
		t.Error("nobody knows that its units were stopped")
	}
}

// TestUncordonWaits: a node is opened again as soon as an API server answers.
func TestUncordonWaits(t *testing.T) {
	t.Parallel()
	calls := 0
	err := again(t.Context(), func(error) bool { return true }, func(context.Context) error {
		if calls++; calls < 2 {
			return errors.New("not up yet")
		}
		return nil
	})
	if err != nil || calls != 2 {
		t.Errorf("%d calls, %v", calls, err)
	}
	final := errors.New("for good")
	if err := again(t.Context(), func(error) bool { return false }, func(context.Context) error { return final }); !errors.Is(err, final) {
		t.Errorf("%v", err)
	}
}
