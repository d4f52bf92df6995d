package host

import (
	"bytes"
	"context"
	_ "embed"
	"fmt"
	"strconv"
	"strings"

	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/remote"
)

//go:embed read.sh
var readFunctions string

// Read returns the content of files, by path; files are absolute paths or
// patterns of the shell without spaces. Of programs, by path, it returns what
// they say of themselves with --version. What is not there is left out. It
// changes nothing. Its errors are those of [remote.Machine.Run].
func Read(ctx context.Context, r Runner, files, programs []string) (map[string][]byte, error) {
	var s script
	s.call("read_files", files...)
	s.call("read_versions", programs...)
	out, err := r.Run(ctx, remote.Command{Script: readFunctions + s.String(), Sudo: true})
	if err != nil {
		return nil, err
	}
	found := map[string][]byte{}
	fields := bytes.Split(out.Stdout, []byte{0})
	for ; len(fields) >= 2; fields = fields[2:] {
		found[string(fields[0])] = fields[1]
	}
	return found, nil
}

// ActiveUnits returns those of the units that are active, in their order. Its
// errors are those of [remote.Machine.Run].
func ActiveUnits(ctx context.Context, r Runner, units ...string) ([]string, error) {
	var s script
	s.call("active", units...)
	out, err := r.Run(ctx, remote.Command{Script: `active() { for u; do ! systemctl is-active --quiet "$u" || echo "$u"; done; }` + "\n" + s.String()})
	return strings.Fields(string(out.Stdout)), err
}

// Life is what becomes of a unit between two looks at it.
type Life struct {
	ActiveState string // "active", "inactive", "failed", "activating", ...
	Result      string // why it last ended: "success", "exit-code", ...
	Restarts    int    // automatic restarts since it was last started by hand
}

// UnitLife looks at one unit. Its errors are those of [remote.Machine.Run].
func UnitLife(ctx context.Context, r Runner, unit string) (Life, error) {
	out, err := r.Run(ctx, remote.Command{Script: "systemctl show --property=ActiveState,Result,NRestarts " + quote(unit)})
	if err != nil {
		return Life{}, err
	}
	var l Life
	for line := range strings.Lines(string(out.Stdout)) {
		switch key, value, _ := strings.Cut(strings.TrimSpace(line), "="); key {
		case "ActiveState":
			l.ActiveState = value
		case "Result":
			l.Result = value
		case "NRestarts":
			l.Restarts, _ = strconv.Atoi(value)
		}
	}
	return l, nil
}

// Starts identifies the boot of a machine and the last start of each of the
// units that has started since: every boot and every start has another. The IDs
// of units are systemd's invocation IDs
// (https://www.freedesktop.org/software/systemd/man/systemd.exec.html#%24INVOCATION_ID).
func Starts(ctx context.Context, r Runner, units ...string) (boot string, starts []string, err error) {
	var s script
	s.WriteString("cat /proc/sys/kernel/random/boot_id\n")
	s.callAll("systemctl show --property=InvocationID --value", units)
	out, err := r.Run(ctx, remote.Command{Script: s.String()})
	if err != nil {
		return "", nil, fmt.Errorf("machine %s: boot id: %w", r.Name(), err)
	}
	boot, rest, _ := strings.Cut(strings.TrimSpace(string(out.Stdout)), "\n")
	return boot, strings.Fields(rest), nil
}
