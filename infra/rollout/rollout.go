// Package rollout brings the machines of a role to what is wanted of them:
// which machine, in which order, behind which health gate. A role is a value, an
// [Etcd], a [ControlPlane], [Workers] or a [LoadBalancer], and four verbs do all:
// [Engine.Observe], [Engine.Apply], [Engine.Remove] and [Files]. Addons, the
// status of a cluster and what an import finds are here too.
//
// There is one way of change: certificates and secrets are made, every machine is
// observed, compared and applied to (package host), and what was applied is
// recorded as hashes. First installation, repair, change, upgrade and scaling are
// that one way in different orders; the order is computed as a [Plan] by pure
// functions before anything is touched.
//
// What a machine must look like is decided in package component, what can be done
// to it is in packages fleet and deed. What may not enter: taking a machine down
// for reasons of its own (package maintenance), Terraform and AWS.
package rollout

import (
	"context"
	"fmt"
	"reflect"

	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/fleet"
)

// Engine rolls out roles. It holds no state of its own and is safe for
// concurrent use.
type Engine struct {
	Fleet *fleet.Fleet
}

// Observe compares a role's machines, and what the cluster says of them, with
// what is wanted. It changes nothing and does not fail because a machine cannot
// be reached.
func (e *Engine) Observe(ctx context.Context, want Role, rec Record) (Report, error) {
	o, err := e.begin(want, rec)
	if err != nil {
		return Report{}, err
	}
	defer o.access.Close()
	return want.observe(ctx, o), nil
}

// Apply brings a role to what is wanted, behind health gates where it serves
// already. prior is what was wanted before, a role of the same kind, nil on
// creation: targets that were in it and are no longer wanted leave the role. The
// record is valid also when there is an error: it says what was done until then.
// Machines that cannot be reached are left as they are, and named by a
// [fleet.LeftError].
func (e *Engine) Apply(ctx context.Context, want, prior Role, rec Record) (Record, error) {
	o, err := e.begin(want, rec)
	if err != nil {
		return rec, err
	}
	if prior != nil && reflect.TypeOf(prior) != reflect.TypeOf(want) {
		return rec, fmt.Errorf("a %T does not follow a %T", want, prior)
	}
	defer o.access.Close()
	err = want.apply(ctx, o, prior)
	return o.result(), err
}

// Remove stops everything of a role on its machines and deletes its files and
// data. Machines that are gone are passed over.
func (e *Engine) Remove(ctx context.Context, have Role, rec Record) error {
	o, err := e.begin(have, rec)
	if err != nil {
		return err
	}
	defer o.access.Close()
	return have.remove(ctx, o)
}

// Files tells what will be on a role's machines: "<machine>:<path>" to
// "sha256:<hex>" for files that are not secret and for downloads, to "issued by
// <common name>" for certificates, and to "from <names in the key store>" for
// secrets. It is pure.
func Files(want Role) (map[string]string, error) { return files(want.role()) }
