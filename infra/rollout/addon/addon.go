// Package addon applies sets of objects to a running cluster, finds what differs, and removes them. An
// addon is reached through the API servers alone: what may not enter are machines and how they are
// rolled out, Terraform and AWS.
package addon

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/finding"
	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/fleet"
	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/foreign"
	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/kube"
	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/pki"
)

// Addon is a set of objects owned together.
type Addon struct {
	API     fleet.API
	Name    string
	Objects []*unstructured.Unstructured
	// Claim is a text that no other addon has. It becomes an annotation of every object, and what
	// has another one is not deleted.
	Claim string
	// Hidden are those of Objects whose values no finding and no error shows.
	Hidden []*unstructured.Unstructured
	// Wait makes Apply wait until the workloads among the objects are available.
	Wait bool
}

// Observe finds what differs between the addon's objects and the cluster's. Findings name the object
// ("ConfigMap kube-system/coredns"). Objects of the inventory that are no longer wanted and still
// exist count as differing. An object that differs only by another addon's claim does not. What could
// not be compared is in unjudged, and no error.
func (a Addon) Observe(ctx context.Context, f *fleet.Fleet, inventory []kube.ObjectRef) (drift, unjudged []finding.Finding, err error) {
	access := f.Access(a.API.PKI)
	defer access.Close()
	if _, err := access.Keys.Admin(ctx, pki.KubernetesCA); err != nil {
		return nil, nil, fmt.Errorf("addon %s: %w", a.Name, err)
	}
	drift, err = fleet.AskAPI(ctx, access, a.API.Endpoint, func(ctx context.Context, c *kube.Client) ([]finding.Finding, error) {
		return a.drift(ctx, c, inventory)
	})
	err = a.hideIn(err)
	switch {
	case kube.Unanswered(err), kube.Permanent(err):
		// Certificates may have expired. An apply renews them, so the plan before it must not fail.
		unjudged = []finding.Finding{{Kind: finding.Addon, Target: a.Name, Problem: finding.Unjudged, Cause: err.Error()}}
	case err != nil:
		return nil, nil, fmt.Errorf("addon %s: %w", a.Name, err)
	}
	return a.hide(drift), unjudged, nil
}

// drift compares an addon with the cluster through one API server.
func (a Addon) drift(ctx context.Context, c *kube.Client, inventory []kube.ObjectRef) ([]finding.Finding, error) {
	if err := c.Ready(ctx); err != nil {
		return nil, err
	}
	drift, err := c.Drift(ctx, a.claimed())
	if err != nil {
		return nil, err
	}
	drift = a.withoutForeign(drift)
	for _, ref := range a.stale(inventory) {
		switch o, err := c.Get(ctx, ref); {
		case err != nil:
			return nil, err
		case o != nil && !a.others(o):
			drift = append(drift, finding.Finding{Subject: ref.String(), Kind: finding.Object, Problem: finding.NotWanted})
		}
	}
	return drift, nil
}

// stale lists what is in the inventory and no longer wanted.
func (a Addon) stale(inventory []kube.ObjectRef) []kube.ObjectRef {
	return slices.DeleteFunc(slices.Clone(inventory), func(ref kube.ObjectRef) bool {
		return slices.ContainsFunc(kube.RefsOf(a.Objects), ref.Same)
	})
}

// Apply applies the objects server-side, deletes those of the inventory that are no longer
// wanted and have no other claim, and returns the new inventory. With an error the inventory is
// valid too: it holds everything that may have been applied.
func (a Addon) Apply(ctx context.Context, f *fleet.Fleet, inventory []kube.ObjectRef) ([]kube.ObjectRef, error) {
	// The objects belong to the inventory before they are applied, so that an interruption leaves
	// nothing behind that is not listed.
	merged := slices.Concat(kube.RefsOf(a.Objects), a.stale(inventory))
	access := f.Access(a.API.PKI)
	defer access.Close()
	c, err := access.API(ctx, a.API.Endpoint)
	if err != nil {
		return inventory, fmt.Errorf("addon %s: %w", a.Name, err)
	}
	err = fleet.Within(ctx, fleet.APIBudget, "API server", func(ctx context.Context) error { return c.WaitReady(ctx, fleet.Poll, nil) })
	if err != nil {
		return inventory, fmt.Errorf("addon %s: %w", a.Name, err)
	}
	applied, err := c.Apply(ctx, a.claimed())
	if err != nil {
		return merged, fmt.Errorf("addon %s: %w", a.Name, a.hideIn(err))
	}
	f.Say(a.Name, "addon: applied %d objects", len(applied))
	doomed, _, err := a.split(ctx, c, a.stale(inventory))
	if err != nil {
		return merged, fmt.Errorf("addon %s: %w", a.Name, err)
	}
	left, err := c.Prune(ctx, doomed, applied)
	have := slices.Concat(applied, left)
	if err != nil {
		return have, fmt.Errorf("addon %s: %w", a.Name, err)
	}
	if a.Wait {
		if err := c.WaitWorkloads(ctx, a.Objects, func(s string) { f.Say(a.Name, "addon: %s", foreign.Text(s)) }); err != nil {
			return have, fmt.Errorf("addon %s: %w", a.Name, withPodAdvice(err))
		}
	}
	return have, nil
}

// withPodAdvice adds the next step to an error about a pod.
func withPodAdvice(err error) error {
	var pod *kube.PodError
	if !errors.As(err, &pod) {
		return err
	}
	return fmt.Errorf("%w\nnext: kubectl --namespace %s describe pod %s\nfix what keeps the pod from running, and apply again", err, pod.Namespace, pod.Pod)
}

// Remove deletes every object of the inventory, and returns those that it has left because
// they have another claim. A cluster that does not exist is an error: only the caller knows whether
// it was deleted on purpose.
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
