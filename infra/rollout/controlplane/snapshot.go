package controlplane

import (
	"context"

	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/component"
	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/fleet"
	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/rollout"
)

// keyFiles are the files that change with a rotation.
var keyFiles = []string{component.CAPath, component.APIServerEtcdCAPath, component.FrontProxyCAPath, component.ServiceAccountPubPath,
	component.ServiceAccountKeyPath, component.EncryptionConfigPath}

// snapshotBefore takes a snapshot if the changes are an upgrade or a rotation, on a controller that
// is an etcd member too.
func (o *operation) snapshotBefore(ctx context.Context) error {
	for _, m := range o.Reachable() {
		if !m.Running(component.APIServerUnit) {
			continue
		}
		if change := rollout.Upheaval(m.Changes, component.APIServerUnit, "kube-apiserver", keyFiles); change != "" {
			return fleet.SnapshotBefore(ctx, o.Reached(), change)
		}
	}
	return nil
}
