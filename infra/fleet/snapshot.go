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
		Advice: "remove the cause, or do without: terraform destroy -target of k8s_etcd_backup takes the program from the machines and leaves all snapshots; then apply again"}
}

// SnapshotFailed makes a StepError of a snapshot that could not be taken.
func (m *Machine) SnapshotFailed(err error) error {
	if err == nil {
		return nil
	}
	return &StepError{Machine: m.Name(), Step: "take a snapshot of etcd", Err: err, Unit: component.EtcdBackupUnit,
		Next: m.SSH("sudo " + component.EtcdBackupProgram + " take")}
}
