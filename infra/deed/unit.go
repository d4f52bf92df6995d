package deed

import (
	"context"
	"fmt"
	"time"
)

// The functions of this package return the errors of [remote.Machine.Run].

// Stop stops units and waits until they have ended.
func Stop(ctx context.Context, r Runner, units ...string) error { return stop.do(ctx, r, units...) }

// Start starts units and does not wait until they have started.
func Start(ctx context.Context, r Runner, units ...string) error { return start.do(ctx, r, units...) }

// Restart restarts units and waits until they have started.
func Restart(ctx context.Context, r Runner, units ...string) error {
	return restart.do(ctx, r, units...)
}

// RestartRunning restarts those of the units that run, and waits until they have.
func RestartRunning(ctx context.Context, r Runner, units ...string) error {
	return restartRunning.do(ctx, r, units...)
}

// Kill stops units at once, not gracefully, and keeps them from restarting. Units that do not run
// are left alone.
func Kill(ctx context.Context, r Runner, units ...string) error { return kill.do(ctx, r, units...) }

// StopNote is the file of NoteStop. It survives a restart of the machine.
const StopNote = "/var/lib/k8s-from-scratch/stopped"

// NoteStop notes units that are about to be stopped for a while. The note says which units must run
// again if the operation that stops them is interrupted.
func NoteStop(ctx context.Context, r Runner, units ...string) error {
	return noteStop.do(ctx, r, append([]string{StopNote}, units...)...)
}

// ForgetStop removes the note: the units run again.
func ForgetStop(ctx context.Context, r Runner) error { return forgetStop.do(ctx, r, StopNote) }

// holdUnit is the transient unit that exists while a unit is held.
const holdUnit = "k8s-hold.service"

// Hold stops the process of a unit (SIGSTOP), if it runs, and returns once it has stopped. Its
// connections stay open. It continues after limit or when it is released. While one unit of a
// machine is held, a second Hold is an error: the package comment says why.
func Hold(ctx context.Context, r Runner, unit string, limit time.Duration) error {
	return hold.do(ctx, r, unit, holdUnit, fmt.Sprintf("%.1f", limit.Seconds()))
}

// Release lets a held unit continue. It does nothing when none is held.
func Release(ctx context.Context, r Runner) error { return release.do(ctx, r, holdUnit) }

// Wipe stops a unit and deletes files and directories, given by their absolute paths.
func Wipe(ctx context.Context, r Runner, unit string, paths ...string) error {
	return wipe.do(ctx, r, append([]string{unit}, paths...)...)
}

// AskPodsToEnd stops the unit of a kubelet, asks all containers to end, and waits for them at most
// grace. Those that do not end keep running until the machine stops.
func AskPodsToEnd(ctx context.Context, r Runner, kubelet string, grace time.Duration) error {
	return askPodsToEnd.do(ctx, r, kubelet, fmt.Sprintf("%.0f", grace.Seconds()))
}

// EndPods returns the script that stops the units of a kubelet, a kube-proxy and a containerd, ends
// the containers that outlive them, and removes their network. It is part of a removal, which runs
// it on the machine in its own round trip.
func EndPods(kubelet, proxy, containerd string) string {
	return endPods.script(kubelet, proxy, containerd)
}
