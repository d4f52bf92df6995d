package kube

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"

	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/finding"
	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/kube/field"
	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/parallel"
	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/patience"
)

// Terms say how objects are applied and compared. With the zero value another manager keeps a field
// that it applies, and the apply fails.
type Terms struct {
	// Ignored are fields that are left to others once the object exists.
	Ignored field.Ignored
	// Force takes also those fields that other managers apply.
	Force bool
	// Replace are the objects that are deleted and created again if the API server does not let
	// them change.
	Replace []ObjectRef
	// Done are Jobs that have finished. If such a Job is gone, it is not missing, and is not
	// applied again.
	Done []ObjectRef
}

// Applied is what an apply has done.
type Applied struct {
	Objects []ObjectRef
	Runs    []JobRun
}

// Conflict is a field that another manager applies with another value.
type Conflict struct{ Manager, Field string }

// ConflictError says which fields of an object other managers apply.
type ConflictError struct {
	Ref       ObjectRef
	Conflicts []Conflict
}

func (e *ConflictError) Error() string {
	var list []string
	for _, c := range e.Conflicts {
		list = append(list, fmt.Sprintf("conflict with %q: %s", c.Manager, c.Field))
	}
	noun := "conflicts"
	if len(list) == 1 {
		noun = "conflict"
	}
	return fmt.Sprintf("applying %s: Apply failed with %d %s: %s", e.Ref, len(list), noun, strings.Join(list, "; "))
}

// ImmutableError says that an object would have to be replaced and that the terms do not allow it.
type ImmutableError struct {
	Ref    ObjectRef
	Fields []string // that cannot be changed
	Loses  string   // what would be lost; empty if nothing would
	err    error
}

func (e *ImmutableError) Error() string { return e.err.Error() }

// Unwrap returns the API server's error.
func (e *ImmutableError) Unwrap() error { return e.err }

// Apply applies objects server-side. Fields that others have written, but do not apply, become ours
// again, except what [field.Left] leaves to them. Namespaces, custom resource definitions and
// admission policies go first, webhook configurations last, the rest in parallel in between. It returns what was applied
// also with an error.
func (c *Client) Apply(ctx context.Context, objects []*unstructured.Unstructured, terms Terms) (Applied, error) {
	var all Applied
	for _, wave := range waves(objects) {
		applied := make([]*unstructured.Unstructured, len(wave))
		group, gctx := parallel.WithContext(ctx)
		group.SetLimit(parallelRequests)
		for i, o := range wave {
			group.Go(func() (err error) {
				applied[i], err = c.apply(gctx, o, terms)
				return err
			})
		}
		err := group.Wait()
		for _, o := range applied {
			if o == nil {
				continue
			}
			all.Objects = append(all.Objects, RefOf(o))
			if o.GetUID() != "" && isJob(o) {
				all.Runs = append(all.Runs, newRun(o))
			}
		}
		if err != nil {
			return all, err
		}
	}
	return all, nil
}

// applyAttempts is how often an object is applied that others change at the same moment.
const applyAttempts = 3

// apply applies one object. It returns the object as it is then, or as it was wanted if it is a
// finished Job that is gone.
func (c *Client) apply(ctx context.Context, want *unstructured.Unstructured, terms Terms) (*unstructured.Unstructured, error) {
	ref := RefOf(want)
	for attempt := 1; ; attempt++ {
		live, err := c.Get(ctx, ref)
		if err != nil {
			return nil, err
		}
		if live == nil && slices.ContainsFunc(terms.Done, ref.Same) {
			return want, nil
		}
		body := want
		if live != nil {
			body = field.Left(want, live, fieldManager, terms.Ignored.Of(want))
		}
		// We own the new object, whoever owned fields of the replaced one.
		replace := slices.ContainsFunc(terms.Replace, ref.Same)
		applied, err := c.patch(ctx, body, terms.Force || replace, false)
		if isConflict(err) {
			theirs := conflicts(err, live)
			if len(theirs) > 0 {
				return nil, &ConflictError{ref, theirs}
			}
			if attempt < applyAttempts && (live == nil || !stillFound(err, live)) {
				continue // somebody has just made or changed it
			}
			applied, err = c.patch(ctx, body, true, false)
		}
		if live == nil || !apierrors.IsInvalid(err) {
			return applied, err
		}
		fields := field.Otherwise(live, want)
		if len(fields) == 0 {
			return nil, err
		}
		loses := field.Loses(want, live)
		if loses != "" || !replace {
			return nil, &ImmutableError{Ref: ref, Fields: fields, Loses: loses, err: err}
		}
		pods := metav1.DeletePropagationBackground
		if field.KeepsPods(live, want) {
			pods = metav1.DeletePropagationOrphan
		}
		if err := c.delete(ctx, ref, pods); err != nil {
			return nil, err
		}
		return c.patch(ctx, want, terms.Force, false)
	}
}

// isConflict reports whether an apply was refused because of the owners of fields.
func isConflict(err error) bool { return len(causes(err)) > 0 }

// causes returns the fields for which an apply was refused.
func causes(err error) (fields []string) {
	var status apierrors.APIStatus
	if !errors.As(err, &status) || status.Status().Details == nil {
		return nil
	}
	for _, cause := range status.Status().Details.Causes {
		if cause.Type == metav1.CauseTypeFieldManagerConflict {
			fields = append(fields, cause.Field)
		}
	}
	return fields
}

// conflicts returns the fields among the causes that other managers apply.
func conflicts(err error, live *unstructured.Unstructured) (out []Conflict) {
	if live == nil {
		return nil
	}
	for _, o := range field.Owners(live, fieldManager) {
		for _, f := range causes(err) {
			if c := (Conflict{o.Manager, f}); o.Applies && o.Has(f) && !slices.Contains(out, c) {
				out = append(out, c)
			}
		}
	}
	return out
}

// stillFound reports whether the owners of all fields for which an apply was refused are known from
// the object as it was read.
func stillFound(err error, live *unstructured.Unstructured) bool {
	owners := field.Owners(live, fieldManager)
	return !slices.ContainsFunc(causes(err), func(f string) bool {
		return !slices.ContainsFunc(owners, func(o field.Owner) bool { return o.Has(f) })
	})
}

// waves sorts objects into those that must exist first, the others, and those that could block the
// others.
func waves(objects []*unstructured.Unstructured) [][]*unstructured.Unstructured {
	out := make([][]*unstructured.Unstructured, 3)
	for _, o := range objects {
		wave := 1
		switch kind := o.GetKind(); {
		case kind == "Namespace", kind == "CustomResourceDefinition", kind == "PriorityClass", isPolicy(kind):
			wave = 0
		case kind == "ValidatingWebhookConfiguration", kind == "MutatingWebhookConfiguration":
			wave = 2
		}
		out[wave] = append(out[wave], o)
	}
	return out
}

// isPolicy says whether objects of a kind restrict what other objects may do. They work without any of these.
func isPolicy(kind string) bool {
	switch kind {
	case "ValidatingAdmissionPolicy", "ValidatingAdmissionPolicyBinding", "MutatingAdmissionPolicy", "MutatingAdmissionPolicyBinding":
		return true
	}
	return false
}

func (c *Client) patch(ctx context.Context, o *unstructured.Unstructured, force, dryRun bool) (*unstructured.Unstructured, error) {
	ref := RefOf(o)
	resource, namespace, err := c.resource(ctx, ref, !dryRun)
	if err != nil {
		return nil, fmt.Errorf("applying %s: %w", ref, err)
	}
	if namespace != o.GetNamespace() {
		o = o.DeepCopy()
		o.SetNamespace(namespace)
	}
	body, err := json.Marshal(o)
	if err != nil {
		return nil, fmt.Errorf("applying %s: %w", ref, err)
	}
	options := metav1.PatchOptions{FieldManager: fieldManager, Force: &force}
	if dryRun {
		options.DryRun = []string{metav1.DryRunAll}
	}
	ctx, cancel := context.WithTimeout(ctx, patience.Of(ctx, requestTimeout))
	defer cancel()
	live, err := resource.Patch(ctx, ref.Name, types.ApplyPatchType, body, options)
	if err != nil {
		return nil, fmt.Errorf("applying %s: %w", ref, err)
	}
	return live, nil
}

// Drift compares objects with what is wanted. It asks the API server in a dry run what a
// server-side apply would change, so that the server decides about defaults, conversions and other
// managers' fields. Nothing is changed. The subject of a finding is its object, as
// [ObjectRef.String] writes it.
func (c *Client) Drift(ctx context.Context, objects []*unstructured.Unstructured, terms Terms) ([]finding.Finding, error) {
	found := make([][]finding.Finding, len(objects))
	group, gctx := parallel.WithContext(ctx)
	group.SetLimit(parallelRequests)
	for i, o := range objects {
		group.Go(func() error {
			drift, err := c.drift(gctx, o, terms)
			found[i] = finding.About(RefOf(o).String(), drift)
			return err
		})
	}
	if err := group.Wait(); err != nil {
		return nil, err
	}
	return slices.Concat(found...), nil
}

func (c *Client) drift(ctx context.Context, want *unstructured.Unstructured, terms Terms) ([]finding.Finding, error) {
	for attempt := 1; ; attempt++ {
		found, err := c.compare(ctx, want, terms, attempt < applyAttempts)
		if !apierrors.IsConflict(err) || attempt == applyAttempts {
			return found, err
		}
	}
}

// compare compares an object once. With asFound it fails with a conflict if the object changes
// meanwhile: what others have just written would be taken for a difference.
func (c *Client) compare(ctx context.Context, want *unstructured.Unstructured, terms Terms, asFound bool) ([]finding.Finding, error) {
	ref := RefOf(want)
	live, err := c.Get(ctx, ref)
	if err != nil {
		return nil, err
	}
	if live == nil {
		if slices.ContainsFunc(terms.Done, ref.Same) {
			return nil, nil
		}
		return []finding.Finding{{Kind: finding.Object, Problem: finding.Missing}}, nil
	}
	body := field.Left(want, live, fieldManager, terms.Ignored.Of(want))
	if asFound {
		body.SetResourceVersion(live.GetResourceVersion())
	}
	applied, err := c.patch(ctx, body, true, true)
	switch {
	case apierrors.IsInvalid(err), apierrors.IsForbidden(err):
		// The live object cannot become the wanted one, or admission refuses it.
		if fields := field.Otherwise(live, want); apierrors.IsInvalid(err) && len(fields) > 0 && field.Loses(want, live) == "" {
			return []finding.Finding{{Kind: finding.Object, Problem: finding.Replaced, Target: strings.Join(fields, ", ")}}, nil
		}
		// A person has to read the reason.
		return []finding.Finding{{Kind: finding.Object, Problem: finding.Refused, Cause: err.Error()}}, nil
	case err != nil:
		return nil, err
	}
	return differences(live, applied, terms.Force), nil
}
