package fleet

import (
	"context"
	"errors"

	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/component"
	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/deed"
)

// SnapshotBefore takes a snapshot of etcd before a change ("the upgrade of etcd"), on the first of
// the machines that can. It takes none if no machine that answers keeps snapshots and wants one before
// changes. If none of those that do can take one, the error is a [GuardError].
func SnapshotBefore(ctx context.Context, machines []*Machine, change string) error {
	var failures []error
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
		case err != nil && !Unreachable(err):
			failures = append(failures, err)
		}
	}
	if len(failures) == 0 {
		return nil
	}
	return &GuardError{Refused: "start " + change, Reason: "no snapshot of etcd could be taken before: " + errors.Join(failures...).Error(),
		Advice: "remove the cause, or set before_changes = false of k8s_etcd_backup and apply that first, with -target"}
}

// SnapshotFailed makes a StepError of a snapshot that could not be taken.
func (m *Machine) SnapshotFailed(err error) error {
	if err == nil {
		return nil
	}
	return &StepError{Machine: m.Name(), Step: "take a snapshot of etcd", Err: err, Unit: component.EtcdBackupUnit,
		Next: m.SSH("sudo " + component.EtcdBackupProgram + " take")}
}
