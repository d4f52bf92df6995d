package component

import (
	"fmt"
	"io"
	"strings"

	"github.com/coreos/go-systemd/v22/unit"

	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/artifact"
	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/desired"
)

// How systemd detects that a service has started (systemd.service(5), Type=).
const (
	// typeNotify: the program notifies systemd. etcd, containerd, kubelet and kube-apiserver do.
	typeNotify = "notify"
	// typeExec: the program has been executed; a missing one is noticed at once.
	typeExec = "exec"
)

// service is what varies between the unit files of this package.
type service struct {
	description   string
	documentation string
	after         []string // units to start after, if they are started at all; none is required
	kind          string   // typeNotify or typeExec
	environment   string   // EnvironmentFile, optional
	exec          string
	shown         string // exec without what must not be shown; empty for all of it
	// startTimeout is TimeoutStartSec; empty means systemd's default.
	startTimeout string
	options      []*unit.UnitOption // further [Service] options
}

func (s service) file(name string) desired.File {
	file := unitFile(name, s.unitOptions())
	if s.shown != "" {
		s.exec = s.shown
		file.Text = unitFile(name, s.unitOptions()).Content
	}
	return file
}

func (s service) unitOptions() []*unit.UnitOption {
	option := unit.NewUnitOption
	opts := []*unit.UnitOption{
		option("Unit", "Description", s.description),
		option("Unit", "Documentation", s.documentation),
		option("Unit", "After", strings.Join(append([]string{"network-online.target"}, s.after...), " ")),
		option("Unit", "Wants", "network-online.target"),
		// A component waits for others by failing and restarting, so systemd must never give up.
		option("Unit", "StartLimitIntervalSec", "0"),
		option("Service", "Type", s.kind),
	}
	if s.environment != "" {
		opts = append(opts, option("Service", "EnvironmentFile", s.environment))
	}
	opts = append(opts, option("Service", "ExecStart", s.exec))
	if s.startTimeout != "" {
		opts = append(opts, option("Service", "TimeoutStartSec", s.startTimeout))
	}
	opts = append(opts,
		option("Service", "Restart", "always"),
		option("Service", "RestartSec", "1"),
	)
	opts = append(opts, s.options...)
	return append(opts, option("Install", "WantedBy", "multi-user.target"))
}

func unitFile(name string, opts []*unit.UnitOption) desired.File {
	// Serialize reads from memory; ReadAll cannot fail.
	content, _ := io.ReadAll(unit.Serialize(opts))
	return desired.File{Path: unitPath(name), Mode: 0o644, Content: content}.Readable()
}

// running returns a unit that is enabled, runs, and restarts when its unit file or one of the paths
// changes.
func running(name string, restartOn ...string) desired.Unit {
	return desired.Unit{Name: name, Enabled: true, Active: true, RestartOn: append([]string{unitPath(name)}, restartOn...)}
}

// environment returns the options that set variables, each as NAME=value, without quotes and spaces.
func environment(variables []string) []*unit.UnitOption {
	var out []*unit.UnitOption
	for _, v := range variables {
		out = append(out, unit.NewUnitOption("Service", "Environment", `"`+v+`"`))
	}
	return out
}

func limitNoFile(n string) []*unit.UnitOption {
	return []*unit.UnitOption{unit.NewUnitOption("Service", "LimitNOFILE", n)}
}

// addProgram adds a Kubernetes program with its unit and its command line: args with the user's
// extra ones over them.
func (m *Machine) addProgram(from []artifact.Artifact, name, description, kind string, after []string, args, extra Args, options []*unit.UnitOption, restartOn ...string) error {
	args, err := args.with(name, extra)
	if err != nil {
		return fmt.Errorf("%s: %w", name, err)
	}
	shown := args.hide(name, extra)
	bin, err := binary(from, name)
	if err != nil {
		return err
	}
	unitName := name + ".service"
	m.State.Binaries = append(m.State.Binaries, bin)
	m.State.Files = append(m.State.Files, service{
		description:   description,
		documentation: "https://kubernetes.io/docs/reference/command-line-tools-reference/" + name + "/",
		after:         after,
		kind:          kind,
		exec:          args.commandLine(binPath(name)),
		shown:         shown.commandLine(binPath(name)),
		options:       options,
	}.file(unitName))
	m.State.Units = append(m.State.Units, running(unitName, append([]string{binPath(name)}, restartOn...)...))
	return nil
}
