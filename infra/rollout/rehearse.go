package rollout

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"path"
	"slices"
	"strings"

	"github.com/coreos/go-systemd/v22/unit"

	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/desired"
	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/host"
	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/remote"
)

const (
	// prefetched is where host.Prefetch leaves downloads, by their digest.
	prefetched = "/var/cache/k8s-from-scratch/"
	// rehearsalPrefix begins the names of the units that exist for a moment only.
	rehearsalPrefix = "k8s-rehearsal-"
)

// rehearse finds out, before anything that runs is stopped, whether the
// programs will accept their new command lines: the very units that are
// wanted are started once more beside those that run, with the programs they
// will have and --version added. Every program this project starts reads all
// its flags before it answers that, and refuses those it does not know.
func (o *operation) rehearse(ctx context.Context, plan Plan) error {
	var machines []*machine
	for _, stage := range plan {
		for _, s := range stage {
			if m := o.byName(s.Machine); m != nil && s.Action.disturbs() && !slices.Contains(machines, m) {
				machines = append(machines, m)
			}
		}
	}
	errs := eachAll(ctx, machines, func(ctx context.Context, m *machine) error {
		script, err := rehearsal(m.state, m.changes)
		if err != nil || script == "" {
			return err
		}
		_, err = m.runner.Run(ctx, remote.Command{Script: script, Sudo: true})
		var exit *remote.ExitError
		if errors.As(err, &exit) {
			return &StepError{Machine: m.name(), Step: "rehearse the new command line", Err: errors.New(strings.TrimSpace(exit.Stderr)),
				Next: "correct the arguments; nothing has been stopped or changed"}
		}
		return err
	})
	for _, name := range sortedKeys(errs) {
		return errs[name] // the others say the same
	}
	return nil
}

// rehearsal is the script for the units whose unit file or program changes,
// empty when there are none.
func rehearsal(state desired.State, changes []host.Change) (string, error) {
	changed := func(target string) bool {
		return slices.ContainsFunc(changes, func(c host.Change) bool { return c.Target == target })
	}
	var script strings.Builder
	for _, u := range state.Units {
		i := slices.IndexFunc(state.Files, func(f desired.File) bool { return path.Base(f.Path) == u.Name })
		if i < 0 || !restarts(changes, u.Name) {
			continue
		}
		options, program, err := rehearsed(state.Files[i].Content)
		if err != nil {
			return "", fmt.Errorf("unit %s: %w", u.Name, err)
		}
		source, plain := downloadOf(state, program)
		switch {
		case !changed(program) && !changed(state.Files[i].Path), changed(program) && !plain:
			continue
		case changed(program):
			options = replaceProgram(options, program, prefetched+source)
			program = prefetched + source
		}
		content, err := io.ReadAll(unit.Serialize(options))
		if err != nil {
			return "", fmt.Errorf("unit %s: %w", u.Name, err)
		}
		fmt.Fprintf(&script, "rehearse %s %s <<'END OF UNIT'\n%s\nEND OF UNIT\n", quote(rehearsalPrefix+u.Name), quote(program), bytes.TrimSpace(content))
	}
	if script.Len() == 0 {
		return "", nil
	}
	return rehearsalFunctions + script.String() + "finish\n", nil
}

// rehearsalFunctions tidy up whatever happens. Of what a program says only the
// complaint matters, which some hide in pages of usage.
const rehearsalFunctions = `set -u
trap '' PIPE
units=
rehearse() {
	cat >"/run/systemd/system/$1" || exit 1
	[ -e "$2" ] || { rm -f "/run/systemd/system/$1"; return; }
	chmod u+x "$2"
	units="$units $1"
}
forget() {
	for unit in $units; do rm -f "/run/systemd/system/$unit"; done
	systemctl daemon-reload
	for unit in $units; do systemctl reset-failed "$unit" 2>/dev/null; done
}
finish() {
	trap forget EXIT
	failed=
	systemctl daemon-reload
	for unit in $units; do
		systemctl start "$unit" 2>/dev/null && continue
		# The journal may be behind what it is told.
		for _ in 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 19 20; do
			log=$(journalctl --unit "$unit" --lines 2000 --output cat --no-pager --quiet)
			complaint=$(printf '%s\n' "$log" | grep -E -m 3 'unknown flag|not defined|invalid (value|argument)|command failed|^Error')
			[ -z "$complaint" ] || break
			sleep 0.1
		done
		failed="$failed${failed:+; }${unit#` + rehearsalPrefix + `} would not start: ${complaint:-$(printf '%s\n' "$log" | tail -n 5)}"
	done
	[ -z "$failed" ] || { printf '%s\n' "$failed" >&2; exit 1; }
	exit 0
}
`

// rehearsed makes of a unit file one that only asks its program for its
// version, and returns the program's path.
func rehearsed(unitFile []byte) (options []*unit.UnitOption, program string, err error) {
	all, err := unit.DeserializeOptions(bytes.NewReader(unitFile))
	if err != nil {
		return nil, "", err
	}
	for _, opt := range all {
		switch {
		case opt.Section == "Service" && opt.Name == "ExecStart":
			program = strings.Fields(opt.Value)[0]
			options = append(options, unit.NewUnitOption("Service", "ExecStart", opt.Value+" --version"))
		case opt.Section == "Service" && strings.HasPrefix(opt.Name, "Environment"):
			options = append(options, opt)
		}
	}
	if program == "" {
		return nil, "", errors.New("no ExecStart")
	}
	return append(options, unit.NewUnitOption("Service", "Type", "oneshot"),
		unit.NewUnitOption("Service", "TimeoutStartSec", "20")), program, nil
}

func replaceProgram(options []*unit.UnitOption, from, to string) []*unit.UnitOption {
	var out []*unit.UnitOption
	for _, opt := range options {
		if opt.Name == "ExecStart" {
			opt = unit.NewUnitOption(opt.Section, opt.Name, to+strings.TrimPrefix(opt.Value, from))
		}
		out = append(out, opt)
	}
	return out
}

// downloadOf returns the digest of the download a program comes from, and
// whether the download is the program itself rather than an archive.
func downloadOf(state desired.State, program string) (digest string, plain bool) {
	for _, b := range state.Binaries {
		for _, i := range b.Installs {
			if i.Path == program {
				return b.SHA256, i.Member == ""
			}
		}
	}
	return "", false
}
