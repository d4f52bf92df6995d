package controlplane

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"maps"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/util/wait"

	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/component"
	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/finding"
	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/fleet"
	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/kube"
	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/rollout"
)

// API servers load a changed EncryptionConfiguration or AuthenticationConfiguration by themselves, without a restart.
// Each does so at its own time, and keeps the former one if it cannot use the new one: an issuer of tokens that it does
// not reach, for example. A roll-out is done when all have loaded what is on their machines.

// reloadBudget is how long an API server may take to load a changed file. It looks once a minute, and gives issuers
// another minute to answer.
const reloadBudget = 150 * time.Second

// loaded is what an API server has loaded, or is to load: the hex SHA-256 of a file, by its path.
type loaded map[string]string

// toLoad returns what every API server is to load. It is nil if that is not the same for all, or not known: then the
// operation's error names the machine that was left.
func (o *operation) toLoad() loaded {
	var out loaded
	for i, m := range o.Machines {
		if m.Gone != nil {
			return nil
		}
		one := authenticationOf(m)
		// After an import, nobody knows what the keys on the machines are.
		if digest := m.Record.Secrets[component.EncryptionConfigPath].SHA256; digest != "" && o.want.Spec.EncryptedUnder() != "" {
			one[component.EncryptionConfigPath] = digest
		}
		if i > 0 && !maps.Equal(one, out) {
			return nil
		}
		out = one
	}
	return out
}

// authenticationOf returns the AuthenticationConfiguration that a machine's API server is to load.
func authenticationOf(m *rollout.Machine) loaded {
	for _, f := range m.Want.State.Files {
		if f.Path == component.AuthenticationPath {
			sum := sha256.Sum256(f.Content)
			return loaded{f.Path: hex.EncodeToString(sum[:])}
		}
	}
	return loaded{}
}

// restartChanged lets the repair of an AuthenticationConfiguration restart the API server if somebody has changed the file after all servers had loaded
// it as it is wanted. A server that was started with the other content may not take the wanted one back: it refuses to
// load other rules for anonymous requests.
func (o *operation) restartChanged() {
	had := o.Record().Loaded
	for _, m := range o.Reachable() {
		for i, c := range m.Changes {
			if c.Kind == finding.File && c.Target == component.AuthenticationPath && !c.AttributesOnly() && had[c.Target] != "" && had[c.Target] == authenticationOf(m)[c.Target] {
				m.Changes[i].Restarts = append(slices.Clone(c.Restarts), component.APIServerUnit)
			}
		}
	}
}

// ask asks an API server what it has loaded.
func (o *operation) ask(ctx context.Context, m *fleet.Machine) (loaded, error) {
	c, err := o.Access.APIServer(ctx, m)
	if err != nil {
		return nil, err
	}
	has, err := c.Loaded(ctx)
	return loaded{component.AuthenticationPath: has.Authentication, component.EncryptionConfigPath: has.Encryption}, err
}

// lacks returns the paths of the files of which an API server has not loaded what is wanted, in order.
func (has loaded) lacks(want loaded) []string {
	return slices.DeleteFunc(slices.Sorted(maps.Keys(want)), func(path string) bool { return has[path] == want[path] })
}

// waitLoaded waits until every API server has loaded what is on its machine, and puts that on record. What is on
// record is not asked again.
func (o *operation) waitLoaded(ctx context.Context) error {
	want := o.toLoad()
	if want == nil || maps.Equal(o.Record().Loaded, want) {
		return nil
	}
	errs := fleet.EachAll(ctx, rollout.MachinesOf(o.Machines), func(ctx context.Context, m *fleet.Machine) error { return o.waitLoadedBy(ctx, m, want) })
	for _, name := range slices.Sorted(maps.Keys(errs)) {
		return errs[name]
	}
	o.Note(func(r *rollout.Record) { r.Loaded = want })
	return nil
}

func (o *operation) waitLoadedBy(ctx context.Context, m *fleet.Machine, want loaded) error {
	watch := m.Watch(component.APIServerUnit)
	var last error
	told := false
	err := fleet.Within(ctx, reloadBudget, "the API server to load its files", func(ctx context.Context) error {
		return wait.PollUntilContextCancel(ctx, fleet.UnitPoll, true, func(ctx context.Context) (bool, error) {
			has, err := o.ask(ctx, m)
			lacks := has.lacks(want)
			switch {
			case err == nil && len(lacks) == 0:
				return true, nil
			case err == nil:
				last = fmt.Errorf("it has not loaded %s, and works with the former content", fleet.List(lacks))
			case kube.Permanent(err):
				return false, err
			case ctx.Err() == nil:
				last = err
			}
			if !told {
				m.Say("API server: waiting until it has loaded %s", fleet.List(lacks))
				told = true
			}
			return false, watch(ctx)
		})
	})
	if err != nil && last != nil {
		err = fmt.Errorf("%w (last: %w)", err, last)
	}
	return m.UnitError(ctx, "wait until the API server has loaded its files", component.APIServerUnit, err)
}

// loadedDrift reports files that an API server has not loaded, if an apply has not seen all of them loaded.
func (o *operation) loadedDrift(ctx context.Context, r *rollout.Report) {
	want := o.toLoad()
	if want == nil || maps.Equal(o.Record().Loaded, want) {
		return
	}
	ctx, cancel := fleet.Probing(ctx)
	defer cancel()
	for _, m := range o.Machines {
		has, err := o.ask(ctx, m.Machine)
		if err != nil {
			r.CannotJudge(finding.File, component.AuthenticationPath, err)
			return
		}
		for _, path := range has.lacks(want) {
			r.Find(finding.Finding{Subject: m.Name(), Kind: finding.File, Target: path, Problem: finding.ReloadPending, Wanted: component.APIServerUnit})
		}
	}
}
