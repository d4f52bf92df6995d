// Package expiry has the wanted state of a machine that powers itself off at a time: a systemd timer and the service
// that it starts. I/O may not enter, and neither may when a cluster ends, and what is on a machine besides.
package expiry

import (
	"fmt"
	"strings"
	"time"

	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/desired"
)

// The units. The timer starts the service.
const (
	Timer   = "k8s-expiry.timer"
	Service = "k8s-expiry.service"
)

const unitDir = "/etc/systemd/system/"

// service shuts the machine down as a person would: systemd stops every unit, and the kubelet first ends its pods, within
// its shutdownGracePeriod. logind may refuse while somebody inhibits the shutdown: then systemd is asked itself.
const service = `[Unit]
Description=Powers the machine off, since its cluster has expired

[Service]
Type=oneshot
ExecStart=sh -c "systemctl --no-block poweroff || systemctl --no-block start poweroff.target"
`

// timer returns the unit file of the timer. systemd does not make up for a time that has passed before the timer starts:
// it would need Persistent=. So a machine that boots later stays up.
func timer(at time.Time) string {
	return fmt.Sprintf(`[Unit]
Description=Powers the machine off when its cluster expires

[Timer]
OnCalendar=%s UTC
AccuracySec=1s
Unit=%s

[Install]
WantedBy=timers.target
`, at.UTC().Format("2006-01-02 15:04:05"), Service)
}

// files are the unit files.
func files(at time.Time) []desired.File {
	return []desired.File{
		desired.File{Path: unitDir + Service, Mode: 0o644, Content: []byte(service)}.Readable(),
		desired.File{Path: unitDir + Timer, Mode: 0o644, Content: []byte(timer(at))}.Readable(),
	}
}

// State returns what a machine needs to power itself off at a time, to the second. A machine that boots after it stays up.
func State(at time.Time) desired.State {
	return desired.State{Files: files(at), Units: []desired.Unit{
		{Name: Service}, // only the timer starts it; what changes it is a difference
		{Name: Timer, Enabled: true, Active: true, RestartOn: []string{unitDir + Timer}},
	}}
}

// Never returns the state of a machine that does not power itself off.
func Never() desired.State {
	return desired.State{Retired: []desired.Retired{
		{Unit: Timer, Paths: []string{unitDir + Timer}},
		{Unit: Service, Paths: []string{unitDir + Service}},
	}}
}

// BootCommand returns a shell command that brings a machine to State early in its first boot, or powers it off if the time
// has passed. It does not fail: who compares the machine with State later says what is missing.
func BootCommand(at time.Time) string {
	var out strings.Builder
	out.WriteString("(umask 022")
	for _, f := range files(at) {
		fmt.Fprintf(&out, " && printf %%s '%s' >%s", f.Content, f.Path)
	}
	fmt.Fprintf(&out, " && systemctl enable %s && systemctl --no-block start %s) || :", Timer, Timer)
	fmt.Fprintf(&out, "\n[ \"$(date +%%s)\" -lt %d ] || systemctl --no-block poweroff || :", at.Unix())
	return out.String()
}
