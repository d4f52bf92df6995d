package rollout

import (
	"archive/tar"
	"bytes"
	"context"
	_ "embed"
	"errors"
	"fmt"
	"io"
	"maps"
	"path"
	"slices"
	"strconv"
	"strings"

	"github.com/coreos/go-systemd/v22/unit"

	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/component"
	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/deed"
	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/desired"
	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/finding"
	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/fleet"
	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/host"
	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/remote"
)

const (
	// prefetched is where host.Prefetch leaves downloads, by their digest.
	prefetched = "/var/cache/k8s-from-scratch/"
	// rehearsalDir holds what a rehearsal needs. The rehearsal deletes it at its end.
	rehearsalDir = "/run/k8s-rehearsal/"
)

// rehearse finds out, before anything is stopped, whether programs accept their new settings. It
// starts the wanted units under other names, beside those that run, with the new programs and
// configuration files, in a sandbox where they can neither write nor connect.
// component.RehearsalArgs makes them exit after checking their settings.
//
// Each unit is rehearsed only on the first machine on which it will restart, since the others get
// the same settings. An unclear result does not refuse the roll-out.
func (o *Operation) rehearse(ctx context.Context, plan Plan) error {
	trials, err := o.trials(plan)
	if err != nil {
		return err
	}
	var machines []*Machine
	for _, name := range slices.Sorted(maps.Keys(trials)) {
		machines = append(machines, o.ByName(name))
	}
	errs := fleet.EachAll(ctx, machines, func(ctx context.Context, m *Machine) error {
		m.Say("%s: rehearsing %s", o.role.Name, fleet.List(unitsOf(trials[m.Name()])))
		return o.rehearseOn(ctx, m, trials[m.Name()])
	})
	for _, name := range slices.Sorted(maps.Keys(errs)) {
		return errs[name] // one error is enough; the user corrects one at a time
	}
	return nil
}

// trial is one unit to rehearse.
type trial struct {
	unit    string
	program string // the file it runs
	// archive is the download that holds program as member; empty if program is a file already.
	archive, member string
	options         []*unit.UnitOption
}

func unitsOf(trials []trial) []string {
	var out []string
	for _, t := range trials {
		out = append(out, t.unit)
	}
	return out
}

// trials returns the units to rehearse by machine: each on the first machine on which the plan
// restarts it with another program, unit file or configuration.
func (o *Operation) trials(plan Plan) (map[string][]trial, error) {
	out, taken := map[string][]trial{}, map[string]bool{}
	for _, stage := range plan {
		for _, s := range stage {
			m := o.ByName(s.Machine)
			if m == nil || !s.Action.Disturbs {
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
func newTrial(state desired.State, changes []host.Change, name string) (*trial, error) {
	changed := func(target string) bool {
		return slices.ContainsFunc(changes, func(c host.Change) bool { return c.Target == target })
	}
	i := slices.IndexFunc(state.Files, func(f desired.File) bool { return path.Base(f.Path) == name })
	if i < 0 || !slices.ContainsFunc(changes, func(c host.Change) bool {
		return (c.Kind == finding.File || c.Kind == finding.Binary) && slices.Contains(c.Restarts, name)
	}) {
		return nil, nil
	}
	t := &trial{unit: name}
	all, err := unit.DeserializeOptions(bytes.NewReader(state.Files[i].Content))
	if err != nil {
		return nil, err
	}
	for _, opt := range all {
		switch {
		case opt.Section == "Service" && opt.Name == "ExecStart":
			words := strings.Fields(opt.Value)
			args, known := component.RehearsalArgs(words)
			if !known {
				return nil, nil
			}
			t.program = words[0]
			if changed(t.program) {
				t.program, t.archive, t.member = newProgram(state, t.program, name)
			}
			line := t.program + strings.TrimPrefix(opt.Value, words[0])
			t.options = append(t.options, unit.NewUnitOption("Service", "ExecStart", strings.Join(append([]string{line}, args...), " ")))
		case opt.Section == "Service" && strings.HasPrefix(opt.Name, "Environment"):
			t.options = append(t.options, opt)
		}
	}
	if t.program == "" {
		return nil, errors.New("no ExecStart")
	}
	return t, nil
}

// rehearseOn rehearses units on one machine and returns the first refusal as an error.
func (o *Operation) rehearseOn(ctx context.Context, m *Machine, trials []trial) error {
	dir := rehearsalDir + strings.ReplaceAll(o.role.Name, " ", "-")
	list, err := sandboxed(dir, trials)
	if err != nil {
		return fmt.Errorf("machine %s: %w", m.Name(), err)
	}
	staged, err := packFiles(m.State, m.Changes)
	if err != nil {
		return fmt.Errorf("machine %s: %w", m.Name(), err)
	}
	report, err := deed.Rehearse(ctx, m.Remote, dir, list, bytes.NewReader(staged))
	var exit *remote.ExitError
	switch {
	case errors.As(err, &exit):
		m.Say("%s: the rehearsal was not possible: %v", o.role.Name, err)
		return nil
	case err != nil:
		return fmt.Errorf("machine %s: rehearsal: %w", m.Name(), err)
	}
	if refused := refusalIn(report); refused != "" {
		return &fleet.StepError{Machine: m.Name(), Step: "rehearse the new configuration", Err: errors.New(remote.Redact(refused)),
			Next: "correct what it complains of; nothing has been stopped or changed"}
	}
	return nil
}

// refusalIn finds the first refusal in the report of [deed.Rehearse]; empty for none.
func refusalIn(report string) string {
	for entry := range strings.SplitSeq(report, "\x00") {
		head, output, _ := strings.Cut(entry, "\n")
		name, status, _ := strings.Cut(head, " ")
		code, err := strconv.Atoi(status)
		if err != nil {
			continue
		}
		if complaint := component.Refusal(code, output); complaint != "" {
			return name + " would not start: " + complaint
		}
	}
	return ""
}

// sandboxed gives the trials the unit files for their rehearsal.
func sandboxed(dir string, trials []trial) ([]deed.Trial, error) {
	var out []deed.Trial
	for _, t := range trials {
		file, err := io.ReadAll(unit.Serialize(append(t.options, sandboxOptions(dir, t.unit)...)))
		if err != nil {
			return nil, fmt.Errorf("unit %s: %w", t.unit, err)
		}
		out = append(out, deed.Trial{Unit: t.unit, Program: t.program, Archive: t.archive, Member: t.member, File: file})
	}
	return out, nil
}

// sandboxOptions are the unit options of a rehearsal. The unit sees the new files in /etc and reads
// what root may read. It has no network, no sockets of daemons and nothing permanent to write to.
// If memory runs out, it is killed first.
func sandboxOptions(dir, name string) []*unit.UnitOption {
	var out []*unit.UnitOption
	for _, o := range [][2]string{
		{"Type", "oneshot"}, {"TimeoutStartSec", "15"}, {"TimeoutStopSec", "1"},
		{"StandardOutput", "file:" + dir + "/" + name + ".log"}, {"StandardError", "inherit"},
		{"BindReadOnlyPaths", dir + "/etc:/etc"}, {"TemporaryFileSystem", "/var/log"},
		{"ProtectSystem", "strict"}, {"ProtectKernelTunables", "yes"}, {"ProtectControlGroups", "yes"},
		{"PrivateTmp", "yes"}, {"PrivateNetwork", "yes"}, {"RestrictAddressFamilies", "AF_INET AF_INET6 AF_NETLINK"},
		{"CapabilityBoundingSet", "CAP_DAC_READ_SEARCH"}, {"NoNewPrivileges", "yes"}, {"OOMScoreAdjust", "1000"},
	} {
		out = append(out, unit.NewUnitOption("Service", o[0], o[1]))
	}
	return out
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

// newProgram returns where a program lies before it is installed. If it is in an archive, program
// is where to unpack it; host.Apply removes a file of that name if the rehearsal does not.
func newProgram(state desired.State, installed, unit string) (program, archive, member string) {
	for _, b := range state.Binaries {
		for _, i := range b.Installs {
			switch {
			case i.Path != installed:
			case i.Member == "":
				return prefetched + b.SHA256, "", ""
			default:
				return prefetched + unit + ".unpacked", prefetched + b.SHA256, i.Member
			}
		}
	}
	return installed, "", ""
}
