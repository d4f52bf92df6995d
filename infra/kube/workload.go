package kube

import (
	"context"
	"fmt"
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/kubectl/pkg/polymorphichelpers"
)

// WaitWorkloads waits until every Deployment, DaemonSet and StatefulSet among
// the objects has rolled out, judged as "kubectl rollout status" does. It ends
// early when a Deployment has exceeded its own progress deadline. progress,
// when given, is told each workload once, as it becomes available.
func (c *Client) WaitWorkloads(ctx context.Context, objects []*unstructured.Unstructured, progress func(string)) error {
	pending := map[ObjectRef]string{}
	for _, o := range objects {
		if _, err := polymorphichelpers.StatusViewerFor(o.GroupVersionKind().GroupKind()); err == nil {
			pending[RefOf(o)] = "not looked at yet"
		}
	}
	err := wait.PollUntilContextCancel(ctx, pollInterval, true, func(ctx context.Context) (bool, error) {
		for ref := range pending {
			message, done, err := c.rolledOut(ctx, ref)
			if err != nil {
				return false, err
			}
			pending[ref] = message
			if !done {
				continue
			}
			delete(pending, ref)
			if progress != nil {
				progress(ref.String() + " is available")
			}
		}
		return len(pending) == 0, nil
	})
	if err != nil && ctx.Err() != nil {
		var words []string
		for ref, message := range pending {
			words = append(words, ref.String()+": "+message)
		}
		return fmt.Errorf("waiting for workloads: %w (last: %s)", context.Cause(ctx), strings.Join(words, "; "))
	}
	return err
}

// rolledOut returns an error only for what waiting cannot mend.
func (c *Client) rolledOut(ctx context.Context, ref ObjectRef) (message string, done bool, err error) {
	o, err := c.Get(ctx, ref)
	if err != nil {
		return err.Error(), false, nil //nolint:nilerr // the API server may be away for a moment; the wait is bounded
	}
	if o == nil {
		return "missing", false, nil
	}
	viewer, err := polymorphichelpers.StatusViewerFor(o.GroupVersionKind().GroupKind())
	if err != nil {
		return "", false, fmt.Errorf("%s: %w", ref, err)
	}
	message, done, err = viewer.Status(o, 0)
	if err != nil {
		return "", false, fmt.Errorf("%s: %w", ref, err)
	}
	return strings.TrimSpace(message), done, nil
}
