package kube

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/dynamic"

	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/parallel"
	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/patience"
)

// fieldManager is this project's name in server-side apply.
const fieldManager = "k8s-from-scratch"

const (
	// parallelRequests is how many objects are sent at the same time: enough to hide the round
	// trip, few enough for priority and fairness.
	parallelRequests = 8
	// kindBudget is how long a kind may be unknown after its definition was applied. The API server
	// publishes a new kind within a second or two, an aggregated one a few seconds after its pods
	// answer.
	kindBudget = 20 * time.Second
)

// ObjectRef names an object of a cluster. It is stored as JSON in inventories.
type ObjectRef struct {
	APIVersion string `json:"api_version"`
	Kind       string `json:"kind"`
	Namespace  string `json:"namespace,omitempty"`
	Name       string `json:"name"`
}

// String returns the name for people: "Deployment kube-system/coredns".
func (r ObjectRef) String() string {
	if r.Namespace == "" {
		return r.Kind + " " + r.Name
	}
	return r.Kind + " " + r.Namespace + "/" + r.Name
}

// Same reports whether two references are to the same object. It ignores the version of the API,
// and takes no namespace for the default one, because manifests may omit it and the API server
// fills it in.
func (r ObjectRef) Same(o ObjectRef) bool {
	namespace := func(ref ObjectRef) string {
		if ref.Namespace == metav1.NamespaceDefault {
			return ""
		}
		return ref.Namespace
	}
	return r.group() == o.group() && r.Kind == o.Kind && namespace(r) == namespace(o) && r.Name == o.Name
}

func (r ObjectRef) group() string {
	group, _, found := strings.Cut(r.APIVersion, "/")
	if !found {
		return ""
	}
	return group
}

// RefOf returns the reference to an object.
func RefOf(o *unstructured.Unstructured) ObjectRef {
	return ObjectRef{APIVersion: o.GetAPIVersion(), Kind: o.GetKind(), Namespace: o.GetNamespace(), Name: o.GetName()}
}

// RefsOf returns the references to objects.
func RefsOf(objects []*unstructured.Unstructured) []ObjectRef {
	out := make([]ObjectRef, len(objects))
	for i, o := range objects {
		out[i] = RefOf(o)
	}
	return out
}

// resource finds the API resource of an object and its namespace. patiently, it waits for an
// unknown kind, whose definition may have just been applied.
func (c *Client) resource(ctx context.Context, ref ObjectRef, patiently bool) (dynamic.ResourceInterface, string, error) {
	gvk := schema.FromAPIVersionAndKind(ref.APIVersion, ref.Kind)
	mapping, err := c.mapping(ctx, gvk)
	if meta.IsNoMatchError(err) && patiently {
		waitCtx, cancel := context.WithTimeout(ctx, patience.Of(ctx, kindBudget))
		defer cancel()
		_ = wait.PollUntilContextCancel(waitCtx, pollInterval, false, func(context.Context) (bool, error) {
			c.mapper.Reset()
			mapping, err = c.mapping(ctx, gvk)
			return !meta.IsNoMatchError(err), nil
		})
	}
	if err != nil {
		return nil, "", err
	}
	resource := c.dynamic.Resource(mapping.Resource)
	if mapping.Scope.Name() != meta.RESTScopeNameNamespace {
		return resource, "", nil
	}
	namespace := ref.Namespace
	if namespace == "" {
		namespace = metav1.NamespaceDefault
	}
	return resource.Namespace(namespace), namespace, nil
}

// mapping asks, once for all kinds, for the resource of a kind. client-go's mapper takes no context
// and gives up on a hanging server only after requestTimeout.
func (c *Client) mapping(ctx context.Context, gvk schema.GroupVersionKind) (*meta.RESTMapping, error) {
	type answer struct {
		mapping *meta.RESTMapping
		err     error
	}
	done := make(chan answer, 1)
	go func() {
		var a answer
		a.err = parallel.Safely(ctx, c.endpoint, func() (err error) {
			a.mapping, err = c.mapper.RESTMapping(gvk.GroupKind(), gvk.Version)
			return err
		})
		done <- a
	}()
	select {
	case a := <-done:
		return a.mapping, a.err
	case <-ctx.Done():
		return nil, fmt.Errorf("asking %s for its kinds: %w", c.endpoint, context.Cause(ctx))
	}
}

// Get reads one object; nil if the object, or its kind, does not exist.
func (c *Client) Get(ctx context.Context, ref ObjectRef) (*unstructured.Unstructured, error) {
	resource, _, err := c.resource(ctx, ref, false)
	if meta.IsNoMatchError(err) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("reading %s: %w", ref, err)
	}
	ctx, cancel := context.WithTimeout(ctx, patience.Of(ctx, requestTimeout))
	defer cancel()
	o, err := resource.Get(ctx, ref.Name, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("reading %s: %w", ref, err)
	}
	return o, nil
}

// Absent returns those of the objects that do not exist, or are being deleted.
func (c *Client) Absent(ctx context.Context, refs []ObjectRef) ([]ObjectRef, error) {
	absent := make([]bool, len(refs))
	group, ctx := parallel.WithContext(ctx)
	group.SetLimit(parallelRequests)
	for i, ref := range refs {
		if slices.Index(refs, ref) < i {
			continue
		}
		group.Go(func() error {
			o, err := c.Get(ctx, ref)
			absent[i] = o == nil || o.GetDeletionTimestamp() != nil
			return err
		})
	}
	if err := group.Wait(); err != nil {
		return nil, err
	}
	var out []ObjectRef
	for i, ref := range refs {
		if absent[i] {
			out = append(out, ref)
		}
	}
	return out, nil
}

// Labelled returns the objects of a kind, in all namespaces, that have a label, whatever its value.
func (c *Client) Labelled(ctx context.Context, kind schema.GroupVersionKind, label string) ([]*unstructured.Unstructured, error) {
	mapping, err := c.mapping(ctx, kind)
	if err != nil {
		return nil, fmt.Errorf("listing every %s with label %s: %w", kind.Kind, label, err)
	}
	ctx, cancel := context.WithTimeout(ctx, patience.Of(ctx, requestTimeout))
	defer cancel()
	list, err := c.dynamic.Resource(mapping.Resource).List(ctx, metav1.ListOptions{LabelSelector: label})
	if err != nil {
		return nil, fmt.Errorf("listing every %s with label %s: %w", kind.Kind, label, err)
	}
	out := make([]*unstructured.Unstructured, len(list.Items))
	for i := range list.Items {
		out[i] = &list.Items[i]
	}
	return out, nil
}

// Prune deletes the objects of an inventory that are not in keep, and waits until they are gone. Admission policies stay
// until all others are gone. It returns those that are not gone yet, with the reason.
func (c *Client) Prune(ctx context.Context, inventory, keep []ObjectRef) ([]ObjectRef, error) {
	var doomed, policies []ObjectRef
	for _, ref := range inventory {
		switch {
		case slices.ContainsFunc(keep, ref.Same):
		case isPolicy(ref.Kind):
			policies = append(policies, ref)
		default:
			doomed = append(doomed, ref)
		}
	}
	left, err := c.deleteAll(ctx, doomed)
	if err != nil {
		return append(left, policies...), err
	}
	return c.deleteAll(ctx, policies)
}

// deleteAll deletes objects in parallel. It returns those that are not gone, with the reason.
func (c *Client) deleteAll(ctx context.Context, doomed []ObjectRef) ([]ObjectRef, error) {
	errs := make([]error, len(doomed))
	var group parallel.Group
	group.SetLimit(parallelRequests)
	for i, ref := range doomed {
		group.Go(func() error {
			errs[i] = c.delete(ctx, ref, metav1.DeletePropagationBackground)
			return nil
		})
	}
	_ = group.Wait() // every error is in errs
	var left []ObjectRef
	for i, ref := range doomed {
		if errs[i] != nil {
			left = append(left, ref)
		}
	}
	return left, errors.Join(errs...)
}

// delete deletes an object and waits until it is gone.
func (c *Client) delete(ctx context.Context, ref ObjectRef, what metav1.DeletionPropagation) error {
	resource, _, err := c.resource(ctx, ref, false)
	if meta.IsNoMatchError(err) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("deleting %s: %w", ref, err)
	}
	err = resource.Delete(ctx, ref.Name, metav1.DeleteOptions{PropagationPolicy: &what})
	if apierrors.IsNotFound(err) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("deleting %s: %w", ref, err)
	}
	var holding []string
	err = wait.PollUntilContextCancel(ctx, pollInterval, true, func(ctx context.Context) (bool, error) {
		o, err := resource.Get(ctx, ref.Name, metav1.GetOptions{})
		if err != nil {
			return apierrors.IsNotFound(err), nil
		}
		holding = o.GetFinalizers()
		return o.GetDeletionTimestamp() == nil, nil // it was created again by someone else
	})
	if err != nil {
		return fmt.Errorf("waiting for %s to be gone: %w (finalizers: %s)", ref, err, strings.Join(holding, ", "))
	}
	return nil
}
