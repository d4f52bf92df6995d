// Package etcdcluster is the role of the members of an etcd cluster: which are started, joined, moved,
// rolled and removed, in which order, so that a quorum always serves; the space of their databases; and
// how a cluster is restored from a snapshot or from one member ([Restore]).
//
// The order is planned by pure functions from what was observed: planNext and planRestore. What may not
// enter: snapshots that are kept (package etcdbackup), API servers but for holding them while the
// leadership moves (package fleet), other roles, Terraform and AWS.
package etcdcluster

import (
	"context"

	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/component"
	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/fleet"
	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/rollout"
)

// Cluster is an etcd cluster and the machines of its members. Spec.Members is derived from Targets.
type Cluster struct {
	Spec    component.EtcdSpec
	Targets []fleet.Target
	// Restore says from what the cluster is made, if not empty.
	Restore Restore
	// Controllers finds the machines with API servers, which are held while etcd's leadership moves. Nil means
	// that there are none but on Targets.
	Controllers func(context.Context) ([]fleet.Target, error)
}

// name is how the role is called in progress, in errors and in claims.
const name = "etcd"

func (x Cluster) spec() component.EtcdSpec {
	x.Spec.Members = fleet.Nodes(x.Targets)
	return x.Spec
}

// Definition implements Role.
func (x Cluster) Definition() rollout.Definition {
	spec := x.spec()
	return rollout.Definition{Name: name, PKI: spec.Cluster.PKI, Targets: x.Targets, Artifacts: x.Spec.Artifacts,
		Machine: func(n component.Node) (component.Machine, error) { return component.Etcd(spec, n) },
		Traces:  spec.Traces(),
		ReadSettings: func(n component.Node, f component.Found) (_ rollout.Role, err error) {
			x.Spec, err = spec.Read(n, f)
			return x, err
		},
		Dirs: []string{component.EtcdDataDir}, AsksMachines: true, AskedAt: component.EtcdClientPort}
}

func (x Cluster) restore() Restore { return x.Restore.complete(x.Spec.Cluster.Name) }
