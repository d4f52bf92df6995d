package host

import (
	"context"
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/desired"
	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/remote"
)

// hanging is a machine on which a command never ends.
type hanging struct{ begins bool }

func (hanging) Name() string { return "m" }

func (h hanging) Run(ctx context.Context, cmd remote.Command) (remote.Output, error) {
	if h.begins {
		_, _ = cmd.Tee.Write([]byte("begun\x00"))
	}
	<-ctx.Done()
	return remote.Output{}, ctx.Err()
}

// TestRemoveHangs: a machine that does not even begin the removal does not get the whole time for
// it.
func TestRemoveHangs(t *testing.T) {
	for begins, want := range map[bool]time.Duration{false: removeSilence, true: 20 * time.Minute} {
		synctest.Test(t, func(t *testing.T) {
			ctx, cancel := context.WithTimeout(t.Context(), 20*time.Minute)
			defer cancel()
			asked := time.Now()
			err := Remove(ctx, hanging{begins}, Removal{})
			if took := time.Since(asked); took != want || errors.Is(err, errSilent) == begins {
				t.Errorf("begins %t: after %s: %v", begins, took, err)
			}
		})
	}
}

// scripted keeps the script that it is given.
type scripted struct{ script string }

func (*scripted) Name() string { return "m" }

func (s *scripted) Run(_ context.Context, cmd remote.Command) (remote.Output, error) {
	s.script = cmd.Script
	return remote.Output{}, nil
}

// TestClaimDuringRemoval: a claim waits until a removal that has begun is over, and what was removed is gone by then.
func TestClaimDuringRemoval(t *testing.T) {
	m := newLocalMachine(t)
	m.write("claim", "mine\n")
	m.write("kubelet.yaml", "x")
	begun, end := m.file("begun"), m.file("end")
	removed, claimed := make(chan error, 1), make(chan error, 1)
	go func() {
		removed <- m.layout().remove(t.Context(), m, Removal{State: desired.State{Files: []desired.File{{Path: m.file("kubelet.yaml")}}},
			First: "echo yes >" + begun + "; until [ -e " + end + " ]; do sleep 0.05; done", ClaimFile: m.file("claim"), Claim: "mine"})
	}()
	for m.read("begun") == "" {
		time.Sleep(10 * time.Millisecond)
	}
	go func() {
		claim := desired.State{Files: []desired.File{{Path: m.file("claim"), Mode: 0o644, Content: []byte("another\n")}}}
		_, err := m.layout().apply(t.Context(), m, claim, m.layout().diff(claim, Observation{}, Record{}), Record{}, Options{})
		claimed <- err
	}()
	select {
	case err := <-claimed:
		t.Errorf("claimed while the removal was at work: %v", err)
	case <-time.After(300 * time.Millisecond):
	}
	m.write("end", "")
	if err := <-removed; err != nil {
		t.Error(err)
	}
	if err := <-claimed; err != nil || m.read("claim") != "another\n" || m.read("kubelet.yaml") != "" {
		t.Errorf("%v, the claim is %q, the file %q", err, m.read("claim"), m.read("kubelet.yaml"))
	}
}

// TestRemoveUndoes: a unit whose stop undoes what it has set up is stopped, and never killed before
// that.
func TestRemoveUndoes(t *testing.T) {
	var m scripted
	units := []desired.Unit{{Name: "routes.service", Undoes: true}, {Name: "server.service"}}
	if err := Remove(t.Context(), &m, Removal{State: desired.State{Units: units}, Kill: true}); err != nil {
		t.Fatal(err)
	}
	called := map[string]string{}
	for line := range strings.Lines(m.script) {
		if function, args, ok := strings.Cut(strings.TrimSpace(line), " "); ok {
			called[function] = args
		}
	}
	if got := called["end_units"]; strings.Contains(got, "routes") || !strings.Contains(got, "server") {
		t.Errorf("ended at once: %s", got)
	}
	if got := called["remove_units"]; !strings.Contains(got, "routes") || !strings.Contains(got, "server") {
		t.Errorf("stopped: %s", got)
	}
}

// TestRemoveRetiredFirst: units that an apply would have retired are removed too, before anything
// is killed.
func TestRemoveRetiredFirst(t *testing.T) {
	var m scripted
	state := desired.State{Units: []desired.Unit{{Name: "server.service"}}, Retired: []desired.Retired{{Unit: "rules.service", Paths: []string{"/etc/rules"}}}}
	if err := Remove(t.Context(), &m, Removal{State: state, Kill: true}); err != nil {
		t.Fatal(err)
	}
	stop, kill := strings.Index(m.script, "remove_known_units 'rules.service'\n"), strings.Index(m.script, "end_units 'server.service'\n")
	if stop < 0 || kill < stop || !strings.Contains(m.script, "remove_files '/etc/rules'\n") {
		t.Errorf("the script ends with\n%s", m.script[max(0, len(m.script)-500):])
	}
}
