package kube

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/wait"

	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/parallel"
	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/patience"
)

// evictionRetry is the pause before a pod that a PodDisruptionBudget protects is evicted again.
// Budgets usually allow it within seconds, when a replacement becomes ready.
const evictionRetry = time.Second

// Drain evicts the pods of a node, except DaemonSet and static pods, as "kubectl drain
// --ignore-daemonsets --delete-emptydir-data --force" does. It respects PodDisruptionBudgets and
// waits until the pods are gone. The node should be cordoned. After timeout the error names the
// remaining pods. progress, if not nil, is called with what is being evicted.
//
// It only makes requests that a kubelet may make about its own node
// (https://kubernetes.io/docs/reference/access-authn-authz/node/), so that a machine can be drained
// with its own credentials.
func (c *Client) Drain(ctx context.Context, node string, timeout time.Duration, progress func(string)) error {
	patience := fmt.Errorf("not within %s", timeout)
	ctx, cancel := context.WithTimeoutCause(ctx, timeout, patience)
	defer cancel()
	if progress == nil {
		progress = func(string) {}
	}
	pods, err := c.evictable(ctx, node)
	if err != nil {
		return fmt.Errorf("draining node %s: %w", node, err)
	}
	var (
		group parallel.Group
		mu    sync.Mutex
		last  error // why a pod could not be evicted yet
		fatal []error
	)
	for _, p := range pods {
		progress(fmt.Sprintf("evicting pod %s/%s", p.Namespace, p.Name))
		group.GoFor("draining node "+node, func() error {
			err := c.evict(ctx, p, func(err error) {
				mu.Lock()
				defer mu.Unlock()
				last = err
			})
			if err != nil && ctx.Err() == nil {
				mu.Lock()
				defer mu.Unlock()
				fatal = append(fatal, err)
				cancel()
			}
			return nil
		})
	}
	if err := group.Wait(); err != nil { // a panic
		return err
	}
	left := pods
	if len(fatal) == 0 {
		if left, err = c.waitGone(ctx, node, pods); err == nil {
			return nil
		}
	}
	words := "none"
	if last != nil {
		words = last.Error()
	}
	return fmt.Errorf("draining node %s: %w (pods left: %s; last: %s)", node,
		errors.Join(append(fatal, context.Cause(ctx))...), strings.Join(podNames(left), ", "), words)
}

// budgetState returns what the API server tells of the PodDisruptionBudget that refuses an eviction,
// such as " The disruption budget web needs 2 healthy pods and has 2 currently".
func budgetState(refusal error) string {
	cause, told := apierrors.StatusCause(refusal, policyv1.DisruptionBudgetCause)
	if !told {
		return ""
	}
	return " " + cause.Message
}

// evictable lists the pods of a node that a drain evicts.
func (c *Client) evictable(ctx context.Context, node string) ([]corev1.Pod, error) {
	ctx, cancel := context.WithTimeout(ctx, patience.Of(ctx, requestTimeout))
	defer cancel()
	list, err := c.typed.CoreV1().Pods(metav1.NamespaceAll).List(ctx, metav1.ListOptions{
		FieldSelector: fields.OneTermEqualSelector("spec.nodeName", node).String()})
	if err != nil {
		return nil, fmt.Errorf("listing its pods: %w", err)
	}
	return slices.DeleteFunc(list.Items, func(p corev1.Pod) bool {
		owner := metav1.GetControllerOf(&p)
		_, mirror := p.Annotations[corev1.MirrorPodAnnotationKey]
		return mirror || owner != nil && owner.Kind == "DaemonSet"
	}), nil
}

// evict retries until the API server accepts the eviction or the pod is gone. It calls waiting with
// the refusals in between; it returns errors that retrying cannot help.
func (c *Client) evict(ctx context.Context, p corev1.Pod, waiting func(error)) error {
	eviction := &policyv1.Eviction{
		ObjectMeta:    metav1.ObjectMeta{Namespace: p.Namespace, Name: p.Name},
		DeleteOptions: &metav1.DeleteOptions{Preconditions: metav1.NewUIDPreconditions(string(p.UID))},
	}
	return wait.PollUntilContextCancel(ctx, evictionRetry, true, func(ctx context.Context) (bool, error) {
		err := c.typed.PolicyV1().Evictions(p.Namespace).Evict(ctx, eviction)
		switch {
		case err == nil, apierrors.IsNotFound(err):
			return true, nil
		case apierrors.HasStatusCause(err, corev1.NamespaceTerminatingCause):
			return true, nil // it is deleted with its namespace
		case apierrors.IsForbidden(err), apierrors.IsInvalid(err), apierrors.IsBadRequest(err), Permanent(err):
			return false, fmt.Errorf("evicting pod %s/%s: %w", p.Namespace, p.Name, err)
		}
		if ctx.Err() == nil {
			waiting(fmt.Errorf("pod %s/%s: %w%s", p.Namespace, p.Name, err, budgetState(err)))
		}
		if apierrors.IsConflict(err) { // perhaps another pod has its name now
			left, err := c.evictable(ctx, p.Spec.NodeName)
			return err == nil && !slices.ContainsFunc(left, func(x corev1.Pod) bool { return x.UID == p.UID }), nil
		}
		return false, nil
	})
}

// waitGone waits until none of the pods is on the node, and returns the remaining ones when ctx
// ends.
func (c *Client) waitGone(ctx context.Context, node string, pods []corev1.Pod) ([]corev1.Pod, error) {
	uids := map[types.UID]bool{}
	for _, p := range pods {
		uids[p.UID] = true
	}
	left := pods
	err := wait.PollUntilContextCancel(ctx, pollInterval, true, func(ctx context.Context) (bool, error) {
		now, err := c.evictable(ctx, node)
		if err != nil {
			if Permanent(err) {
				return false, err
			}
			return false, nil // an API server may be restarting; the wait is bounded
		}
		left = slices.DeleteFunc(now, func(p corev1.Pod) bool { return !uids[p.UID] })
		return len(left) == 0, nil
	})
	return left, err
}

// podNames names pods, and says of one that ends or is not ready that it is so.
func podNames(pods []corev1.Pod) []string {
	var out []string
	for _, p := range pods {
		name := p.Namespace + "/" + p.Name
		switch {
		case p.DeletionTimestamp != nil:
			name += " (being deleted)"
		case !running(&p):
			name += " (not ready)"
		}
		out = append(out, name)
	}
	return out
}
