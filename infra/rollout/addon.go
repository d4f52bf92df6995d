package rollout

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/finding"
	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/fleet"
	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/kube"
	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/pki"
	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/remote"
)

// API is how to reach the API servers of a running cluster.
type API struct {
	// Endpoint is https://<host>:6443.
	Endpoint string
	PKI      pki.Ref
}

// Addon is a set of objects owned together.
type Addon struct {
	API     API
	Name    string
	Objects []*unstructured.Unstructured
	// Claim is a text that no other addon has. It becomes an annotation of every object, and what
	// has another one is not deleted.
	Claim string
	// Hidden are those of Objects whose values no finding and no error shows.
	Hidden []*unstructured.Unstructured
	// Wait makes ApplyObjects wait until the workloads among the objects are available.
	Wait bool
}

// ObserveObjects finds what differs between the addon's objects and the cluster's. Findings name
// the object ("ConfigMap kube-system/coredns"). Objects of the inventory that are no longer wanted
// and still exist count as differing. An object that differs only by another addon's claim does
// not.
func (e *Engine) ObserveObjects(ctx context.Context, want Addon, inventory []kube.ObjectRef) (Report, error) {
	r := newReport()
	a := e.Fleet.Access(want.API.PKI)
	defer a.Close()
	if _, err := a.Keys.Admin(ctx, pki.KubernetesCA); err != nil {
		return r, fmt.Errorf("addon %s: %w", want.Name, err)
	}
	drift, err := fleet.AskAPI(ctx, a, want.API.Endpoint, func(ctx context.Context, c *kube.Client) ([]finding.Finding, error) {
		return objectDrift(ctx, c, want, inventory)
	})
	err = want.hideIn(err)
	switch {
	case kube.Unanswered(err), kube.Permanent(err):
		// Certificates may have expired. An apply renews them, so the plan before it must not fail.
		r.unjudged(finding.Addon, want.Name, err)
	case err != nil:
		return r, fmt.Errorf("addon %s: %w", want.Name, err)
	}
	r.find(want.hide(drift)...)
	return r, nil
}

// objectDrift compares an addon with the cluster through one API server.
func objectDrift(ctx context.Context, c *kube.Client, want Addon, inventory []kube.ObjectRef) ([]finding.Finding, error) {
	if err := c.Ready(ctx); err != nil {
		return nil, err
	}
	drift, err := c.Drift(ctx, want.claimed())
	if err != nil {
		return nil, err
	}
	drift = want.withoutForeign(drift)
	for _, ref := range stale(inventory, want) {
		switch o, err := c.Get(ctx, ref); {
		case err != nil:
			return nil, err
		case o != nil && !want.others(o):
			drift = append(drift, finding.Finding{Subject: ref.String(), Kind: finding.Object, Problem: finding.NotWanted})
		}
	}
	return drift, nil
}

// stale lists what is in the inventory and no longer wanted.
func stale(inventory []kube.ObjectRef, want Addon) []kube.ObjectRef {
	return slices.DeleteFunc(slices.Clone(inventory), func(ref kube.ObjectRef) bool {
		return slices.ContainsFunc(kube.RefsOf(want.Objects), ref.Same)
	})
}

// ApplyObjects applies the objects server-side, deletes those of the inventory that are no longer
// wanted and have no other claim, and returns the new inventory. With an error the inventory is
// valid too: it holds everything that may have been applied.
func (e *Engine) ApplyObjects(ctx context.Context, want Addon, inventory []kube.ObjectRef) ([]kube.ObjectRef, error) {
	// The objects belong to the inventory before they are applied, so that an interruption leaves
	// nothing behind that is not listed.
	merged := slices.Concat(kube.RefsOf(want.Objects), stale(inventory, want))
	a := e.Fleet.Access(want.API.PKI)
	defer a.Close()
	c, err := a.API(ctx, want.API.Endpoint)
	if err != nil {
		return inventory, fmt.Errorf("addon %s: %w", want.Name, err)
	}
	err = fleet.Within(ctx, fleet.APIBudget, "API server", func(ctx context.Context) error { return c.WaitReady(ctx, fleet.Poll, nil) })
	if err != nil {
		return inventory, fmt.Errorf("addon %s: %w", want.Name, err)
	}
	applied, err := c.Apply(ctx, want.claimed())
	if err != nil {
		return merged, fmt.Errorf("addon %s: %w", want.Name, want.hideIn(err))
	}
	e.Fleet.Say(want.Name, "addon: applied %d objects", len(applied))
	doomed, _, err := want.split(ctx, c, stale(inventory, want))
	if err != nil {
		return merged, fmt.Errorf("addon %s: %w", want.Name, err)
	}
	left, err := c.Prune(ctx, doomed, applied)
	have := slices.Concat(applied, left)
	if err != nil {
		return have, fmt.Errorf("addon %s: %w", want.Name, err)
	}
	if want.Wait {
		if err := c.WaitWorkloads(ctx, want.Objects, func(s string) { e.Fleet.Say(want.Name, "addon: %s", remote.Redact(s)) }); err != nil {
			return have, fmt.Errorf("addon %s: %w", want.Name, withPodAdvice(err))
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
	redact(pod)
	return fmt.Errorf("%w\nnext: kubectl --namespace %s describe pod %s\nfix what keeps the pod from running, and apply again", err, pod.Namespace, pod.Pod)
}

// RemoveObjects deletes every object of the inventory, and returns those that it has left because
// they have another claim. A cluster that does not exist is an error: only the caller knows whether
// it was deleted on purpose.
func (e *Engine) RemoveObjects(ctx context.Context, have Addon, inventory []kube.ObjectRef) (kept []kube.ObjectRef, err error) {
	a := e.Fleet.Access(have.API.PKI)
	defer a.Close()
	c, err := a.API(ctx, have.API.Endpoint)
	if err != nil {
		return nil, fmt.Errorf("addon %s: %w", have.Name, err)
	}
	own, kept, err := have.split(ctx, c, inventory)
	if err != nil {
		return nil, fmt.Errorf("addon %s: %w", have.Name, err)
	}
	if _, err := c.Prune(ctx, own, nil); err != nil {
		return kept, fmt.Errorf("addon %s: %w", have.Name, err)
	}
	return kept, nil
}
