package fleet

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/component"
	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/deed"
	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/snapshot"
)

// SnapshotBefore takes a snapshot of etcd before a change ("the upgrade of etcd"), on the first of
// the machines that can. It takes none if no machine that answers keeps snapshots and wants one before
// changes. If none of those that do can take one, the error is a [GuardError].
func SnapshotBefore(ctx context.Context, machines []*Machine, change string) error {
	var failures, away []error
	for _, m := range machines {
		var taken string
		err := Within(ctx, SnapshotBudget, "a snapshot of etcd", func(ctx context.Context) (err error) {
			taken, err = deed.SnapshotBefore(ctx, m.Remote, component.EtcdBackupProgram)
			return err
		})
		switch {
		case taken != "":
			m.Say("etcd: took a snapshot before %s", change)
			return nil
		case ctx.Err() != nil:
			return ctx.Err()
		case Unreachable(err):
			away = append(away, err)
		case err != nil:
			failures = append(failures, err)
		}
	}
	if len(failures) == 0 {
		if len(away) > 0 {
			machines[0].Say("etcd: no snapshot was taken before %s: %v", change, errors.Join(away...))
		}
		return nil
	}
	return &GuardError{Refused: "start " + change, Reason: "no snapshot of etcd could be taken before: " + errors.Join(failures...).Error(),
		Advice: "remove the cause, or change the cluster without a snapshot: terraform destroy -target of k8s_etcd_backup removes the program from the machines and leaves all snapshots; " +
			"then apply again"}
}

// SnapshotFailed makes a StepError of a snapshot that could not be taken.
func (m *Machine) SnapshotFailed(err error) error {
	if err == nil {
		return nil
	}
	return &StepError{Machine: m.Name(), Step: "take a snapshot of etcd", Err: err, Unit: component.EtcdBackupUnit,
		Next: m.SSH("sudo " + component.EtcdBackupProgram + " take")}
}

// Snapshots is what one machine says of the snapshots of etcd.
type Snapshots struct {
	Machine string
	// At is the location at which it looks: s3://<bucket>/<prefix>.
	At string
	// Newest is the newest snapshot that it knows of, nil if there is none.
	Newest *snapshot.Description
	// Counted is set if it has read the bucket.
	Counted bool
	// Failed is why its last run failed, empty if it did not.
	Failed string
	// Err is why it does not know what the bucket has.
	Err error
}

// AskSnapshots asks the machine's program what it knows of snapshots. It changes nothing.
func (m *Machine) AskSnapshots(ctx context.Context) Snapshots {
	lines, err := deed.AskSnapshots(ctx, m.Remote, component.EtcdBackupProgram)
	out := ReadSnapshots(m.Name(), lines) // its answers before it was interrupted count too
	if err != nil {
		out.Err = err
	}
	return out
}

// ReadSnapshots reads the lines of the program on a machine.
func ReadSnapshots(machine, lines string) Snapshots {
	out := Snapshots{Machine: machine}
	for line := range strings.Lines(lines) {
		name, value, _ := strings.Cut(strings.TrimSpace(line), " ")
		switch name {
		case "at":
			out.At = value
		case "newest":
			d, err := snapshot.Parse([]byte(value))
			if err != nil {
				out.Err = fmt.Errorf("machine %s: %w", machine, err)
				continue
			}
			out.Newest = &d
		case "count":
			out.Counted = true
		case "failed":
			out.Failed = value
		case "unknown":
			out.Err = fmt.Errorf("machine %s: %s", machine, value)
		}
	}
	return out
}
