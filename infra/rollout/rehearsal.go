package rollout

import (
	"archive/tar"
	"bytes"
	"context"
	"errors"
	"fmt"
	"path"
	"slices"
	"strings"

	"github.com/coreos/go-systemd/v22/unit"

	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/component"
	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/deed"
	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/desired"
	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/finding"
	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/fleet"
	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/foreign"
	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/host"
	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/remote"
)

// rehearse finds out, before anything is stopped or started for good, whether programs accept their
// settings. It starts the wanted units under other names, beside those that run, with the new programs and
// configuration files, in a sandbox where they can neither write nor connect. component.RehearsalArgs makes
// them exit after checking their settings. So it needs nothing but the machine: no etcd, no API server.
//
// Each unit is rehearsed only on the first machine on which it will start or restart, since the others get
// the same settings. An unclear result does not refuse the roll-out.
func (o *Operation) rehearse(ctx context.Context, m *Machine, trials []deed.Trial) error {
	if len(trials) == 0 {
		return nil
	}
	m.Say("%s: rehearsing %s", o.role.Name, fleet.List(unitsOf(trials)))
	return o.rehearseOn(ctx, m, trials)
}

func unitsOf(trials []deed.Trial) []string {
	var out []string
	for _, t := range trials {
		out = append(out, t.Unit)
	}
	return out
}

// trials returns the units to rehearse by machine: each on the first machine on which the plan
// starts or restarts it with another program, unit file or configuration.
func (o *Operation) trials(plan Plan) (map[string][]deed.Trial, error) {
	out, taken := map[string][]deed.Trial{}, map[string]bool{}
	for _, batch := range plan {
		for _, s := range batch {
			m := o.ByName(s.Machine)
			if m == nil || !s.starts() {
				continue
			}
			for _, u := range m.State.Units {
				if taken[u.Name] {
					continue
				}
				t, err := newTrial(m.State, m.Changes, u.Name)
				if err != nil {
					return nil, fmt.Errorf("machine %s: unit %s: %w", m.Name(), u.Name, err)
				}
				if t != nil {
					taken[u.Name] = true
					out[m.Name()] = append(out[m.Name()], *t)
				}
			}
		}
	}
	return out, nil
}

// newTrial makes a trial of a unit that the changes restart. It is nil when nothing that a program
// reads changes.
func newTrial(state desired.State, changes []host.Change, name string) (*deed.Trial, error) {
	changed := func(target string) bool {
		return slices.ContainsFunc(changes, func(c host.Change) bool { return c.Target == target })
	}
	i := slices.IndexFunc(state.Files, func(f desired.File) bool { return path.Base(f.Path) == name })
	if i < 0 || !slices.ContainsFunc(changes, func(c host.Change) bool {
		return (c.Kind == finding.File || c.Kind == finding.Binary) && slices.Contains(c.Restarts, name)
	}) {
		return nil, nil
	}
	t := &deed.Trial{Unit: name}
	all, err := unit.DeserializeOptions(bytes.NewReader(state.Files[i].Content))
	if err != nil {
		return nil, err
	}
	for _, opt := range all {
		switch {
		case opt.Section == "Service" && opt.Name == "ExecStart":
			words := strings.Fields(opt.Value)
			runs := component.RehearsalArgs(words)
			if len(runs) == 0 {
				return nil, nil
			}
			t.Program = words[0]
			if changed(t.Program) {
				t.Program, t.Archive, t.Member = host.PrefetchedProgram(state, t.Program, name)
			}
			line := t.Program + strings.TrimPrefix(opt.Value, words[0])
			for _, args := range runs {
				t.Options = append(t.Options, unit.NewUnitOption("Service", "ExecStart", strings.Join(append([]string{line}, args...), " ")))
			}
		case opt.Section == "Service" && strings.HasPrefix(opt.Name, "Environment"):
			t.Options = append(t.Options, opt)
		}
	}
	if t.Program == "" {
		return nil, errors.New("no ExecStart")
	}
	return t, nil
}

// rehearseOn rehearses units on one machine and returns the first refusal as an error.
func (o *Operation) rehearseOn(ctx context.Context, m *Machine, trials []deed.Trial) error {
	staged, err := packFiles(m.State, m.Changes)
	if err != nil {
		return fmt.Errorf("machine %s: %w", m.Name(), err)
	}
	report, err := deed.Rehearse(ctx, m.Remote, strings.ReplaceAll(o.role.Name, " ", "-"), trials, bytes.NewReader(staged))
	var exit *remote.ExitError
	switch {
	case errors.As(err, &exit):
		m.Say("%s: the rehearsal was not possible: %v", o.role.Name, err)
		return nil
	case err != nil:
		return fmt.Errorf("machine %s: rehearsal: %w", m.Name(), err)
	}
	if refused := refusalIn(report); refused != "" {
		return &fleet.StepError{Machine: m.Name(), Step: "rehearse the new configuration", Err: errors.New(foreign.Text(refused)),
			Next: "correct what it complains of; nothing has been stopped or changed"}
	}
	return nil
}

// refusalIn finds the first refusal among the answers of a rehearsal; empty for none. A setting that nothing reads
// is refused as well.
func refusalIn(answers []deed.Rehearsed) string {
	for _, a := range answers {
		if refused := component.Refusal(a.Code, a.Output, host.Complaint(a.Output)); refused != "" {
			return a.Unit + " " + refused
		}
	}
	return ""
}

// packFiles packs the files in /etc that the changes write, keys included, because the rehearsed
// program needs them. They are uploaded as an apply uploads them and stay in memory, readable only
// by root, until the rehearsal ends.
func packFiles(state desired.State, changes []host.Change) ([]byte, error) {
	var out bytes.Buffer
	w := tar.NewWriter(&out)
	for _, f := range state.Files {
		if f.Content == nil || !Touches(changes, f.Path) || !strings.HasPrefix(f.Path, "/etc/") {
			continue
		}
		if err := w.WriteHeader(&tar.Header{Typeflag: tar.TypeReg, Name: strings.TrimPrefix(f.Path, "/"),
			Mode: int64(f.Mode), Size: int64(len(f.Content)), Uname: f.Owner, Gname: f.Group}); err != nil {
			return nil, err
		}
		if _, err := w.Write(f.Content); err != nil {
			return nil, err
		}
	}
	err := w.Close() // before the bytes are used: Close pads and ends the archive
	return out.Bytes(), err
}
