package deed

import (
	"context"
	"strings"
)

// TakeSnapshot takes a snapshot of etcd with the machine's program, and returns its description.
// The program has put it into its bucket then.
func TakeSnapshot(ctx context.Context, r Runner, program string) (description string, err error) {
	return snapshot.run(ctx, r, snapshot.script(program, "take"), nil)
}

// SnapshotBefore is TakeSnapshot before a change of the cluster. It takes none, and the description
// is empty, if the machine keeps no snapshots or wants none before changes.
func SnapshotBefore(ctx context.Context, r Runner, program string) (description string, err error) {
	out, err := snapshot.run(ctx, r, snapshot.script(program, "before"), nil)
	return strings.TrimSpace(out), err
}

// RunSnapshots does what the timer of the program does: it sends snapshots that wait, takes one if
// one is due, and deletes old ones.
func RunSnapshots(ctx context.Context, r Runner, program string) error {
	_, err := snapshot.run(ctx, r, snapshot.script(program, "run"), nil)
	return err
}

// AskSnapshots returns what the program knows of snapshots, in its own lines: none if the machine keeps
// none. It changes nothing.
func AskSnapshots(ctx context.Context, r Runner, program string) (lines string, err error) {
	return snapshot.run(ctx, r, snapshot.script(program, "newest"), nil)
}
