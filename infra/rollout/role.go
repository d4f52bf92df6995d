package rollout

import (
	"context"
	"fmt"
	"reflect"
	"slices"
	"strings"

	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/artifact"
	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/component"
	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/fleet"
	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/pki"
)

// Role is a set of components on machines, such as an etcd cluster. It is a value: what is wanted. Each
// role is in a package of its own.
type Role interface {
	// Definition returns what the engine must know of the role.
	Definition() Definition
	// Observe compares machines and cluster with what is wanted: [Operation.Report], and what only the
	// role asks.
	Observe(ctx context.Context, o *Operation) Report
	// Apply brings the machines to the wanted state, and removes the role from those that leave it. prior has
	// the settings that were wanted before, nil on creation; it is of the same type. Do not use its targets:
	// o.Prior has the earlier machines that still belong to this record.
	Apply(ctx context.Context, o *Operation, prior Role) error
	// Remove removes the role from all machines: [Operation.Remove], and what it has left in the cluster.
	Remove(ctx context.Context, o *Operation) error
}

// checkRole refuses values of type Role that are not roles: nil and pointers.
func checkRole(r Role) error {
	if r == nil || reflect.TypeOf(r).Kind() == reflect.Pointer {
		return fmt.Errorf("a role is a value, not a %T", r)
	}
	return nil
}

// Definition is what the engine must know of a [Role].
type Definition struct {
	Name    string // for progress and errors: "etcd"
	PKI     pki.Ref
	Targets []fleet.Target
	// Artifacts are the downloads that the role needs. It is the role's own slice: the caller may set
	// missing checksums in it.
	Artifacts []artifact.Artifact
	// Machine returns the wanted state of one machine. It is pure.
	Machine func(component.Node) (component.Machine, error)
	// Traces is where the role's settings are found on a machine, and ReadSettings returns the role with
	// those that were found.
	Traces       component.Traces
	ReadSettings func(component.Node, component.Found) (Role, error)
	// Dirs are directories that hold only this role's data and configuration. Removing the role
	// deletes them.
	Dirs []string
	// AsksMachines is set when the role's questions to the cluster go to its own machines. If none
	// of those can be reached, only that is reported.
	AsksMachines bool
	// AskedAt is the port at which the role's program on each machine is asked, through the machine's sshd; 0 if
	// none is.
	AskedAt int
	// EndFirst is a script that ends processes that keep running when units stop. It runs on a
	// machine before the role is removed from it.
	EndFirst string
}

// departing returns the targets of prior whose machines do not belong to the role any more.
func departing(want, prior []fleet.Target) []fleet.Target {
	return slices.Concat(fleet.Leaving(want, prior), fleet.Superseded(want, prior))
}

// claimPath is the file on a machine that says who owns the role there.
func (r Definition) claimPath() string {
	return "/var/lib/k8s-from-scratch/claims/" + strings.ReplaceAll(r.Name, " ", "-")
}
