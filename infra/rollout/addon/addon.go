// Package addon applies sets of objects to a running cluster, finds what differs, and removes them. An
// addon is reached through the API servers alone: what may not enter are machines and how they are
// rolled out, Terraform and AWS.
package addon

import (
	"context"
	"fmt"
	"slices"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/finding"
	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/fleet"
	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/foreign"
	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/kube"
	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/kube/field"
	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/pki"
)

// Addon is a set of objects owned together.
type Addon struct {
	API     fleet.API
	Name    string
	Objects []*unstructured.Unstructured
	// Claim is a text that no other addon has. It becomes an annotation of every object. Objects
	// with another claim are not deleted.
	Claim string
	// Hidden are those of Objects whose values no finding and no error shows.
	Hidden []*unstructured.Unstructured
	// Ignored are fields that are left to others once their object exists, and Force takes those that
	// other field managers apply.
	Ignored field.Ignored
	Force   bool
	// Replace are the objects that Apply may delete and make anew.
	Replace []kube.ObjectRef
	// Runs are what is known of Jobs whose manifests are the same as then. One that has finished may
	// be gone.
	Runs []kube.JobRun
	// Wait makes Apply wait until the workloads among the objects are available, and until Jobs have
	// completed that are removed afterwards.
	Wait bool
}

// Observation is how an addon is.
type Observation struct {
	Drift []finding.Finding
	// Unjudged is what could not be compared. It is no error.
	Unjudged []finding.Finding
	// Runs are those of the addon's Jobs.
	Runs []kube.JobRun
}

// terms returns how the objects are applied.
func (a Addon) terms() kube.Terms {
	terms := kube.Terms{Ignored: a.Ignored, Force: a.Force, Replace: a.Replace}
	for _, run := range a.Runs {
		if run.Finished {
			terms.Done = append(terms.Done, run.Ref)
		}
	}
	return terms
}

// Observe finds what differs between the addon's objects and the cluster's. Findings name the object
// ("ConfigMap kube-system/coredns"). Objects of the inventory that are no longer wanted and still
// exist count as differing. An object that differs only by the claim of another addon does not, and
// neither does a Job that has finished and is gone.
func (a Addon) Observe(ctx context.Context, f *fleet.Fleet, inventory []kube.ObjectRef) (Observation, error) {
	access := f.Access(a.API.PKI)
	defer access.Close()
	if _, err := access.Keys.Admin(ctx, pki.KubernetesCA); err != nil {
		return Observation{}, fmt.Errorf("addon %s: %w", a.Name, err)
	}
	seen, err := fleet.AskAPI(ctx, access, a.API.Endpoint, func(ctx context.Context, c *kube.Client) (Observation, error) {
		return a.observe(ctx, c, inventory)
	})
	err = a.hideIn(err)
	switch {
	case kube.Unanswered(err), kube.Permanent(err):
		// Certificates may have expired. An apply renews them, so the plan before it must not fail.
		return Observation{Runs: a.Runs, Unjudged: []finding.Finding{{Kind: finding.Addon, Target: a.Name, Problem: finding.Unjudged, Cause: err.Error()}}}, nil
	case err != nil:
		return Observation{}, fmt.Errorf("addon %s: %w", a.Name, err)
	}
	seen.Drift = a.hide(seen.Drift)
	return seen, nil
}

// observe compares an addon with the cluster through one API server.
func (a Addon) observe(ctx context.Context, c *kube.Client, inventory []kube.ObjectRef) (seen Observation, err error) {
	if err := c.Ready(ctx); err != nil {
		return seen, err
	}
	if seen.Runs, err = c.Runs(ctx, a.Objects, a.Runs); err != nil {
		return seen, err
	}
	a.Runs = seen.Runs
	if seen.Drift, err = c.Drift(ctx, a.claimed(), a.terms()); err != nil {
		return seen, err
	}
	seen.Drift = a.withoutForeign(seen.Drift)
	for _, ref := range a.stale(inventory) {
		switch o, err := c.Get(ctx, ref); {
		case err != nil:
			return seen, err
		case o != nil && !a.others(o):
			seen.Drift = append(seen.Drift, finding.Finding{Subject: ref.String(), Kind: finding.Object, Problem: finding.NotWanted})
		}
	}
	return seen, nil
}

// stale lists what is in the inventory and no longer wanted.
func (a Addon) stale(inventory []kube.ObjectRef) []kube.ObjectRef {
	return slices.DeleteFunc(slices.Clone(inventory), func(ref kube.ObjectRef) bool {
		return slices.ContainsFunc(kube.RefsOf(a.Objects), ref.Same)
	})
}

// Applied is what is known after an apply.
type Applied struct {
	Inventory []kube.ObjectRef
	Runs      []kube.JobRun
}

// Apply applies the objects server-side, and deletes those of the inventory that are no longer
// wanted and have no other claim. What it returns is valid with an error too: the inventory holds
// everything that may have been applied.
func (a Addon) Apply(ctx context.Context, f *fleet.Fleet, inventory []kube.ObjectRef) (Applied, error) {
	// The objects belong to the inventory before they are applied, so that an interruption leaves
	// nothing behind that is not listed.
	merged := slices.Concat(kube.RefsOf(a.Objects), a.stale(inventory))
	access := f.Access(a.API.PKI)
	defer access.Close()
	c, err := access.API(ctx, a.API.Endpoint)
	if err != nil {
		return Applied{inventory, a.Runs}, fmt.Errorf("addon %s: %w", a.Name, err)
	}
	err = fleet.Within(ctx, fleet.APIBudget, "API server", func(ctx context.Context) error { return c.WaitReady(ctx, fleet.Poll, nil) })
	if err != nil {
		return Applied{inventory, a.Runs}, fmt.Errorf("addon %s: %w", a.Name, err)
	}
	applied, err := c.Apply(ctx, a.claimed(), a.terms())
	out := Applied{merged, a.present(applied.Runs)}
	if err != nil {
		return out, fmt.Errorf("addon %s: %w", a.Name, a.hideIn(withFieldAdvice(err)))
	}
	f.Say(a.Name, "addon: applied %d objects", len(applied.Objects))
	doomed, _, err := a.split(ctx, c, a.stale(inventory))
	if err != nil {
		return out, fmt.Errorf("addon %s: %w", a.Name, err)
	}
	left, err := c.Prune(ctx, doomed, applied.Objects)
	out.Inventory = slices.Concat(applied.Objects, left)
	if err != nil {
		return out, fmt.Errorf("addon %s: %w", a.Name, err)
	}
	if !a.Wait {
		return out, nil
	}
	runs, err := c.WaitWorkloads(ctx, a.Objects, applied.Runs, func(s string) { f.Say(a.Name, "addon: %s", foreign.Text(a.hideText(s))) })
	out.Runs = a.present(runs)
	if err != nil {
		return out, fmt.Errorf("addon %s: %w", a.Name, a.hideIn(withPodAdvice(err)))
	}
	return out, nil
}

// present returns the given runs, and those that were known before of Jobs that are not among them. A
// Job that had finished still counts as done, unless it may have been made anew.
func (a Addon) present(runs []kube.JobRun) []kube.JobRun {
	runs = slices.Clone(runs)
	for i, run := range runs {
		done := slices.ContainsFunc(a.Runs, func(o kube.JobRun) bool { return o.Finished && o.Ref.Same(run.Ref) })
		runs[i].Finished = run.Finished || done && !slices.ContainsFunc(a.Replace, run.Ref.Same)
	}
	known := func(r kube.JobRun) bool {
		return slices.ContainsFunc(runs, func(o kube.JobRun) bool { return o.Ref.Same(r.Ref) })
	}
	return slices.Concat(runs, slices.DeleteFunc(slices.Clone(a.Runs), known))
}

// Remove deletes every object of the inventory, and returns the objects that it has left because
// another addon has claimed them. A cluster that does not exist is an error: only the caller knows
// whether it was deleted on purpose.
func (a Addon) Remove(ctx context.Context, f *fleet.Fleet, inventory []kube.ObjectRef) (kept []kube.ObjectRef, err error) {
	access := f.Access(a.API.PKI)
	defer access.Close()
	c, err := access.API(ctx, a.API.Endpoint)
	if err != nil {
		return nil, fmt.Errorf("addon %s: %w", a.Name, err)
	}
	own, kept, err := a.split(ctx, c, inventory)
	if err != nil {
		return nil, fmt.Errorf("addon %s: %w", a.Name, err)
	}
	if _, err := c.Prune(ctx, own, nil); err != nil {
		return kept, fmt.Errorf("addon %s: %w", a.Name, err)
	}
	return kept, nil
}

// Find returns the addon's objects that are in the cluster, to rebuild a lost inventory, and
// their claim, which is empty if they have none in common.
func (a Addon) Find(ctx context.Context, f *fleet.Fleet) (inventory []kube.ObjectRef, claim string, err error) {
	access := f.Access(a.API.PKI)
	defer access.Close()
	objects, err := fleet.AskAPI(ctx, access, a.API.Endpoint, func(ctx context.Context, c *kube.Client) ([]*unstructured.Unstructured, error) {
		var found []*unstructured.Unstructured
		for _, ref := range kube.RefsOf(a.Objects) {
			switch o, err := c.Get(ctx, ref); {
			case err != nil:
				return nil, err
			case o != nil:
				found = append(found, o)
			}
		}
		return found, nil
	})
	if err != nil {
		return nil, "", fmt.Errorf("addon %s: %w", a.Name, err)
	}
	return kube.RefsOf(objects), claimOf(objects), nil
}
