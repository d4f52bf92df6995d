package account

import (
	"bytes"
	"context"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"

	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/aws/machine"
	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/expiry"
	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/remote"
)

// onExpiry are the directories of a machine that scripts about its expiry use. They are below the machine's root
// directory here.
var onExpiry = []string{"/etc/systemd/system", "/var/lib/k8s-from-scratch", "/var/cache/k8s-from-scratch", "/run/k8s-from-scratch"}

// units stands for systemctl: $ROOT/units has a file active.U for each unit that is active, and a line in calls for each
// call that changes something.
const units = `#!/bin/sh
state=$ROOT/units dir=$ROOT/etc/systemd/system verb=
while [ $# -gt 0 ]; do
	case $1 in
	--) shift; break ;;
	-p) shift ;;
	-*) ;;
	*) [ -z "$verb" ] || break; verb=$1 ;;
	esac
	shift
done
case $verb in show | list-unit-files | is-active) ;; *) echo "$verb $*" >>"$state/calls" ;; esac
case $verb in
show)
	for unit; do
		load=not-found active=inactive fragment=
		if [ -f "$dir/$unit" ]; then load=loaded fragment=$dir/$unit; fi
		[ ! -e "$state/active.$unit" ] || active=active
		printf 'Id=%s\nLoadState=%s\nActiveState=%s\nSubState=x\nUnitFileState=\nFragmentPath=%s\nDropInPaths=\nNeedDaemonReload=no\nResult=success\nNRestarts=0\nMainPID=0\nActiveEnterTimestampMonotonic=1\n\n' \
			"$unit" "$load" "$active" "$fragment"
	done ;;
list-unit-files)
	for unit; do
		enabled=static
		case $unit in *.timer) enabled=disabled ;; esac
		[ ! -L "$dir/timers.target.wants/$unit" ] || enabled=enabled
		[ ! -f "$dir/$unit" ] || echo "$unit $enabled enabled"
	done ;;
enable) mkdir -p "$dir/timers.target.wants"; for unit; do ln -sf "../$unit" "$dir/timers.target.wants/$unit"; done ;;
disable) for unit; do rm -f "$dir/timers.target.wants/$unit"; done ;;
start | restart) for unit; do [ -f "$dir/$unit" ] || exit 5; : >"$state/active.$unit"; done ;;
stop) for unit; do rm -f "$state/active.$unit"; done ;;
esac
exit 0
`

// runWithUnits runs a script about a machine's expiry in the machine's root directory.
func (m *Machines) runWithUnits(ctx context.Context, host machine.Machine, cmd remote.Command) (remote.Output, error) {
	root := m.Root(host.ID)
	bin := filepath.Join(root, "bin")
	for _, dir := range []string{bin, filepath.Join(root, "units"), filepath.Join(root, onExpiry[0])} {
		if err := os.MkdirAll(dir, 0o755); err != nil {
			return remote.Output{}, err
		}
	}
	if err := os.WriteFile(filepath.Join(bin, "systemctl"), []byte(units), 0o755); err != nil { //nolint:gosec // a program
		return remote.Output{}, err
	}
	script := cmd.Script
	for _, dir := range onExpiry {
		script = strings.ReplaceAll(script, dir, root+dir)
	}
	run := exec.CommandContext(context.WithoutCancel(ctx), "sh", "-c", script)
	run.Env = []string{"PATH=" + bin + ":" + os.Getenv("PATH"), "ROOT=" + root}
	run.Stdin = cmd.Stdin
	var stdout, stderr bytes.Buffer
	run.Stdout, run.Stderr = &stdout, &stderr
	err := run.Run()
	said := bytes.ReplaceAll(stdout.Bytes(), []byte(root), nil)
	if cmd.Tee != nil {
		if _, err := io.Copy(cmd.Tee, bytes.NewReader(said)); err != nil {
			return remote.Output{}, err
		}
	}
	if err != nil {
		return remote.Output{}, &remote.ExitError{Machine: host.Name, Code: run.ProcessState.ExitCode(), Stderr: strings.ReplaceAll(stderr.String(), root, "")}
	}
	return remote.Output{Stdout: said}, nil
}

// aboutExpiry reports whether a script concerns the timer that powers the machine off.
func aboutExpiry(script string) bool { return strings.Contains(script, expiry.Timer) }
