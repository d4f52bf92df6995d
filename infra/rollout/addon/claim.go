package addon

import (
	"context"
	"slices"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/finding"
	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/fleet"
	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/kube"
	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/parallel"
)

// Two addons may have the same object: when one replaces the other before the other is removed,
// when a manifest moves between them, or when both need the same Namespace. The object belongs to
// the addon that was applied last, and the other addon leaves it. The claim alone is no drift: each
// of the two would take the object from the other in turn.

// claimAnnotation is the annotation with an addon's claim.
const claimAnnotation = "k8s-from-scratch/claim"

// claimed returns the objects with the addon's claim.
func (a Addon) claimed() []*unstructured.Unstructured {
	if a.Claim == "" {
		return a.Objects
	}
	out := make([]*unstructured.Unstructured, len(a.Objects))
	for i, o := range a.Objects {
		out[i] = o.DeepCopy()
		annotations := out[i].GetAnnotations()
		if annotations == nil {
			annotations = map[string]string{}
		}
		annotations[claimAnnotation] = a.Claim
		out[i].SetAnnotations(annotations)
	}
	return out
}

// others reports whether an object has the claim of another addon. An addon without a claim owns
// objects without one.
func (a Addon) others(o *unstructured.Unstructured) bool {
	claim := o.GetAnnotations()[claimAnnotation]
	return claim != "" && claim != a.Claim
}

// claimField is the path of the claim in an object, as package kube writes it.
const claimField = `metadata.annotations["` + claimAnnotation + `"]`

// withoutForeign returns the findings without findings about objects that differ only by the claim
// of another addon.
func (a Addon) withoutForeign(drift []finding.Finding) []finding.Finding {
	foreign := map[string]bool{}
	for _, f := range drift {
		only, seen := foreign[f.Subject]
		foreign[f.Subject] = (only || !seen) && f.Kind == finding.Field && f.Target == claimField && f.Found != "" && f.Found != `""`
	}
	return slices.DeleteFunc(drift, func(f finding.Finding) bool { return foreign[f.Subject] })
}

// split separates the objects with the claim of another addon from the rest.
func (a Addon) split(ctx context.Context, c *kube.Client, refs []kube.ObjectRef) (own, others []kube.ObjectRef, err error) {
	theirs := make([]bool, len(refs))
	group, ctx := parallel.WithContext(ctx)
	group.SetLimit(fleet.ParallelMachines)
	for i, ref := range refs {
		group.Go(func() error {
			o, err := c.Get(ctx, ref)
			theirs[i] = o != nil && a.others(o)
			return err
		})
	}
	if err := group.Wait(); err != nil {
		return nil, nil, err
	}
	for i, ref := range refs {
		if theirs[i] {
			others = append(others, ref)
		} else {
			own = append(own, ref)
		}
	}
	return own, others, nil
}

// claimOf returns the claim that objects have; empty if they have none, or not the same.
func claimOf(objects []*unstructured.Unstructured) string {
	var all []string
	for _, o := range objects {
		all = append(all, o.GetAnnotations()[claimAnnotation])
	}
	if all = slices.Compact(all); len(all) == 1 {
		return all[0]
	}
	return ""
}
