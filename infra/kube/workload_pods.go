package kube

import (
	"context"
	"fmt"
	"slices"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	deployments "k8s.io/kubectl/pkg/util/deployment"

	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/foreign"
	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/patience"
)

// revisionLabel has the revision of the DaemonSet or StatefulSet that made a pod.
const revisionLabel = appsv1.ControllerRevisionHashLabelKey

// podsOf lists the pods that a workload's controller has made of the current template. It leaves
// out pods of earlier revisions, which are being replaced. There are none before the controller has
// seen the template.
func (c *Client) podsOf(ctx context.Context, ref ObjectRef) ([]corev1.Pod, error) {
	ctx, cancel := context.WithTimeout(ctx, patience.Of(ctx, requestTimeout))
	defer cancel()
	namespace := ref.Namespace
	if namespace == "" {
		namespace = metav1.NamespaceDefault
	}
	var (
		pods []corev1.Pod
		err  error
	)
	switch (schema.GroupKind{Group: ref.group(), Kind: ref.Kind}) {
	case schema.GroupKind{Group: appsv1.GroupName, Kind: "Deployment"}:
		pods, err = c.podsOfDeployment(ctx, namespace, ref.Name)
	case schema.GroupKind{Group: appsv1.GroupName, Kind: "DaemonSet"}:
		pods, err = c.podsOfDaemonSet(ctx, namespace, ref.Name)
	case schema.GroupKind{Group: appsv1.GroupName, Kind: "StatefulSet"}:
		pods, err = c.podsOfStatefulSet(ctx, namespace, ref.Name)
	case schema.GroupKind{Group: "batch", Kind: "Job"}:
		pods, err = c.podsOfJob(ctx, namespace, ref.Name)
	}
	if apierrors.IsNotFound(err) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("listing the pods of %s: %w", ref, err)
	}
	return pods, nil
}

func (c *Client) podsOfDeployment(ctx context.Context, namespace, name string) ([]corev1.Pod, error) {
	d, err := c.typed.AppsV1().Deployments(namespace).Get(ctx, name, metav1.GetOptions{})
	if err != nil || d.Status.ObservedGeneration < d.Generation {
		return nil, err
	}
	selector := metav1.FormatLabelSelector(d.Spec.Selector)
	sets, err := c.typed.AppsV1().ReplicaSets(namespace).List(ctx, metav1.ListOptions{LabelSelector: selector})
	if err != nil {
		return nil, err
	}
	present := d.Annotations[deployments.RevisionAnnotation]
	i := slices.IndexFunc(sets.Items, func(s appsv1.ReplicaSet) bool {
		return metav1.IsControlledBy(&s, d) && s.Annotations[deployments.RevisionAnnotation] == present
	})
	if i < 0 {
		return nil, nil
	}
	return c.controlled(ctx, namespace, metav1.FormatLabelSelector(sets.Items[i].Spec.Selector), sets.Items[i].UID)
}

func (c *Client) podsOfDaemonSet(ctx context.Context, namespace, name string) ([]corev1.Pod, error) {
	d, err := c.typed.AppsV1().DaemonSets(namespace).Get(ctx, name, metav1.GetOptions{})
	if err != nil || d.Status.ObservedGeneration < d.Generation {
		return nil, err
	}
	selector := metav1.FormatLabelSelector(d.Spec.Selector)
	revisions, err := c.typed.AppsV1().ControllerRevisions(namespace).List(ctx, metav1.ListOptions{LabelSelector: selector})
	if err != nil {
		return nil, err
	}
	own := slices.DeleteFunc(revisions.Items, func(r appsv1.ControllerRevision) bool { return !metav1.IsControlledBy(&r, d) })
	if len(own) == 0 {
		return nil, nil
	}
	newest := slices.MaxFunc(own, func(a, b appsv1.ControllerRevision) int { return int(a.Revision - b.Revision) })
	return c.controlled(ctx, namespace, selector+","+revisionLabel+"="+newest.Labels[revisionLabel], d.UID)
}

func (c *Client) podsOfStatefulSet(ctx context.Context, namespace, name string) ([]corev1.Pod, error) {
	s, err := c.typed.AppsV1().StatefulSets(namespace).Get(ctx, name, metav1.GetOptions{})
	if err != nil || s.Status.ObservedGeneration < s.Generation || s.Status.UpdateRevision == "" {
		return nil, err
	}
	return c.controlled(ctx, namespace, metav1.FormatLabelSelector(s.Spec.Selector)+","+revisionLabel+"="+s.Status.UpdateRevision, s.UID)
}

func (c *Client) podsOfJob(ctx context.Context, namespace, name string) ([]corev1.Pod, error) {
	j, err := c.typed.BatchV1().Jobs(namespace).Get(ctx, name, metav1.GetOptions{})
	if err != nil || j.Status.CompletionTime != nil {
		return nil, err
	}
	return c.controlled(ctx, namespace, metav1.FormatLabelSelector(j.Spec.Selector), j.UID)
}

// controlled lists the pods with the given labels that a controller owns.
func (c *Client) controlled(ctx context.Context, namespace, selector string, owner types.UID) ([]corev1.Pod, error) {
	list, err := c.typed.CoreV1().Pods(namespace).List(ctx, metav1.ListOptions{LabelSelector: selector})
	if err != nil {
		return nil, err
	}
	return slices.DeleteFunc(list.Items, func(p corev1.Pod) bool {
		ref := metav1.GetControllerOf(&p)
		return ref == nil || ref.UID != owner
	}), nil
}

// diagnose returns what keeps a pod from running. It reads the pod's events if the status is not
// enough.
func (c *Client) diagnose(ctx context.Context, pod *corev1.Pod) *Trouble {
	if t := troubleOf(pod, nil); t != nil || running(pod) {
		return t
	}
	ctx, cancel := context.WithTimeout(ctx, patience.Of(ctx, requestTimeout))
	defer cancel()
	events, err := c.typed.CoreV1().Events(pod.Namespace).List(ctx, metav1.ListOptions{
		FieldSelector: fields.Set{"involvedObject.uid": string(pod.UID), "type": corev1.EventTypeWarning}.String()})
	if err != nil {
		return nil // the next observation may know; the wait is bounded
	}
	return troubleOf(pod, events.Items)
}

// running reports whether all the pod's containers run and are ready, or have completed.
func running(pod *corev1.Pod) bool {
	return pod.Status.Phase == corev1.PodSucceeded || slices.ContainsFunc(pod.Status.Conditions, func(c corev1.PodCondition) bool {
		return c.Type == corev1.PodReady && c.Status == corev1.ConditionTrue
	})
}

// cannotMakePods returns why a Deployment's controller cannot make pods (a quota, an admission
// rule, a missing service account); empty if it can or does not say.
func cannotMakePods(o *unstructured.Unstructured) string {
	conditions, _, _ := unstructured.NestedSlice(o.Object, "status", "conditions")
	for _, c := range conditions {
		m, _ := c.(map[string]any)
		if m["type"] == string(appsv1.DeploymentReplicaFailure) && m["status"] == string(corev1.ConditionTrue) {
			message, _ := m["message"].(string)
			return foreign.Line(message, maxTroubleMessage)
		}
	}
	return ""
}
