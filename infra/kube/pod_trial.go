package kube

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/wait"

	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/patience"
)

const (
	// trialPrefix begins the names of trial pods.
	trialPrefix = "node-trial-"
	// trialLabel marks trial pods, so that admission rules can exempt them.
	trialLabel = "k8s-from-scratch/node-trial"
	// provenAnnotation records on a node the state in which a pod last started there.
	provenAnnotation = "k8s-from-scratch/pod-started"
	// trialDeleteBudget bounds the deletion of a trial pod.
	trialDeleteBudget = 5 * time.Second
	// refusalGrace is how long the API server may refuse the pod, since admission rules may be
	// changing and webhooks may answer late.
	refusalGrace = 5 * time.Second
)

// Trial is a pod that is started on a node to test whether pods start there.
type Trial struct {
	Node string
	// Image is the pod's image: the node's sandbox image, whose program runs until it is stopped
	// and which every other pod needs too.
	Image string
	// HostNetwork is set for nodes that have no pod network yet.
	HostNetwork bool
	// Refused, if not nil, is called once if an admission webhook does not answer. The webhook
	// itself may be waiting for a node to run on.
	Refused func(context.Context, error)
	// Abort, if not nil, is called between polls; its error ends the trial.
	Abort func(context.Context) error

	uid types.UID // of the pod, once created
}

// ErrNodeFull says that a node has no room for the trial pod.
var ErrNodeFull = errors.New("the node is full")

// Try starts the pod and deletes it again, and deletes a pod left by an earlier trial. It returns
// nil if the pod has run, ErrNodeFull if the kubelet rejected it for lack of resources, and a
// *PodError if it has been failing to start for failGrace.
func (c *Client) Try(ctx context.Context, t Trial) error {
	defer c.endTrial(ctx, t)
	var (
		patience podPatience
		looked   time.Time
		last     = errors.New("the API server was not asked") // why it has not started
		started  = time.Now()
	)
	err := wait.PollUntilContextCancel(ctx, pollInterval, true, func(ctx context.Context) (bool, error) {
		pod, err := c.trialPod(ctx, &t)
		switch {
		case Permanent(err):
			return false, err
		case refused(err) && time.Since(started) > refusalGrace:
			return false, fmt.Errorf("%w; %s", err, refusalAdvice(err))
		case err != nil:
			if ctx.Err() == nil {
				last = err
			}
			return false, abort(ctx, t.Abort)
		case hasRun(pod):
			return true, nil
		case rejected(pod):
			return false, ErrNodeFull
		}
		if time.Since(looked) < lookInterval {
			return false, nil
		}
		looked = time.Now()
		last = fmt.Errorf("pod %s/%s is %s", pod.Namespace, pod.Name, strings.ToLower(string(pod.Status.Phase)))
		var troubles []Trouble
		if found := c.diagnose(ctx, pod); found != nil {
			troubles, last = []Trouble{*found}, errors.New(found.String())
		}
		if over := patience.lost(looked, troubles); len(over) > 0 {
			return false, c.podError(ctx, "", over[0], 0)
		}
		if pod.Status.Phase == corev1.PodFailed { // a failed pod does not start again
			return false, c.deleteTrial(ctx, t)
		}
		return false, abort(ctx, t.Abort)
	})
	if err != nil && ctx.Err() != nil {
		return fmt.Errorf("starting a pod: %w (last: %w)", context.Cause(ctx), last)
	}
	return err
}

func abort(ctx context.Context, f func(context.Context) error) error {
	if f == nil {
		return nil
	}
	return f(ctx)
}

// refused reports whether an admission rule or a webhook rejects the pod, as opposed to a service
// account that the controller manager has not made yet. A webhook's denial without a code has
// status 400.
func refused(err error) bool {
	return apierrors.IsInvalid(err) || apierrors.IsBadRequest(err) || apierrors.IsForbidden(err) && !lacksServiceAccount(err)
}

// refusalAdvice says what to do about a rejection. No label exempts from a ResourceQuota.
func refusalAdvice(err error) string {
	if overQuota(err) {
		return "make room in the quotas of namespace " + metav1.NamespaceSystem
	}
	return fmt.Sprintf("let pods with the label %s in namespace %s through", trialLabel, metav1.NamespaceSystem)
}

// hasRun reports whether the pod's container has started.
func hasRun(pod *corev1.Pod) bool {
	return slices.ContainsFunc(pod.Status.ContainerStatuses, func(s corev1.ContainerStatus) bool {
		return s.State.Running != nil || s.State.Terminated != nil && !s.State.Terminated.StartedAt.IsZero() && s.State.Terminated.ExitCode == 0
	})
}

// trialPod returns the trial's pod, and creates it if necessary.
func (c *Client) trialPod(ctx context.Context, t *Trial) (*corev1.Pod, error) {
	ctx, cancel := context.WithTimeout(ctx, patience.Of(ctx, requestTimeout))
	defer cancel()
	if t.uid != "" {
		pod, err := c.typed.CoreV1().Pods(metav1.NamespaceSystem).Get(ctx, t.podName(), metav1.GetOptions{})
		switch {
		case err == nil && pod.UID == t.uid && pod.DeletionTimestamp == nil:
			return pod, nil
		case err != nil && !apierrors.IsNotFound(err):
			return nil, fmt.Errorf("reading pod %s: %w", t.podName(), err)
		}
		t.uid = "" // someone has deleted it
	}
	pod, err := c.typed.CoreV1().Pods(metav1.NamespaceSystem).Create(ctx, t.pod(), metav1.CreateOptions{FieldManager: fieldManager})
	if apierrors.IsAlreadyExists(err) { // left by an interrupted trial
		err = c.deleteTrial(ctx, *t)
		if err == nil {
			pod, err = c.typed.CoreV1().Pods(metav1.NamespaceSystem).Create(ctx, t.pod(), metav1.CreateOptions{FieldManager: fieldManager})
		}
	}
	if err != nil {
		if t.Refused != nil && apierrors.IsInternalError(err) {
			t.Refused(ctx, err)
			t.Refused = nil
		}
		return nil, fmt.Errorf("making pod %s/%s: %w", metav1.NamespaceSystem, t.podName(), err)
	}
	t.uid = pod.UID
	return pod, nil
}

func (t Trial) podName() string { return trialPrefix + t.Node }

// pod returns the trial's pod. It is assigned to its node without the scheduler, tolerates all
// taints, and complies with the "restricted" Pod Security Standard except for HostNetwork.
func (t Trial) pod() *corev1.Pod {
	yes, no, user, grace := true, false, int64(65535), int64(0)
	return &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: metav1.NamespaceSystem, Name: t.podName(), Labels: map[string]string{trialLabel: "true"}},
		Spec: corev1.PodSpec{
			NodeName: t.Node, HostNetwork: t.HostNetwork, RestartPolicy: corev1.RestartPolicyNever,
			Tolerations:                   []corev1.Toleration{{Operator: corev1.TolerationOpExists}},
			TerminationGracePeriodSeconds: &grace, AutomountServiceAccountToken: &no, EnableServiceLinks: &no,
			SecurityContext: &corev1.PodSecurityContext{RunAsNonRoot: &yes, RunAsUser: &user,
				SeccompProfile: &corev1.SeccompProfile{Type: corev1.SeccompProfileTypeRuntimeDefault}},
			Containers: []corev1.Container{{Name: "pause", Image: t.Image, ImagePullPolicy: corev1.PullIfNotPresent,
				SecurityContext: &corev1.SecurityContext{AllowPrivilegeEscalation: &no, ReadOnlyRootFilesystem: &yes,
					Capabilities: &corev1.Capabilities{Drop: []corev1.Capability{"ALL"}}}}},
		},
	}
}

// deleteTrial deletes the pod without waiting for its end. One that does not exist is no error.
func (c *Client) deleteTrial(ctx context.Context, t Trial) error {
	now := int64(0)
	err := c.typed.CoreV1().Pods(metav1.NamespaceSystem).Delete(ctx, t.podName(), metav1.DeleteOptions{GracePeriodSeconds: &now})
	if err != nil && !apierrors.IsNotFound(err) {
		return fmt.Errorf("deleting pod %s/%s: %w", metav1.NamespaceSystem, t.podName(), err)
	}
	return nil
}

// endTrial deletes the pod on a context of its own. If that fails, the next trial deletes it.
func (c *Client) endTrial(ctx context.Context, t Trial) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), patience.Of(ctx, trialDeleteBudget))
	defer cancel()
	_ = c.deleteTrial(ctx, t)
}

// SetProven notes on a node the state in which a pod has started there. A node that registers again
// at this moment gets no note and is tested again later.
func (c *Client) SetProven(ctx context.Context, name, state string) error {
	ctx, cancel := context.WithTimeout(ctx, patience.Of(ctx, requestTimeout))
	defer cancel()
	patch, err := json.Marshal(map[string]any{"metadata": map[string]any{"annotations": map[string]any{provenAnnotation: state}}})
	if err == nil {
		_, err = c.typed.CoreV1().Nodes().Patch(ctx, name, types.MergePatchType, patch, metav1.PatchOptions{FieldManager: fieldManager})
	}
	if err != nil && !apierrors.IsNotFound(err) {
		return fmt.Errorf("updating node %s: %w", name, err)
	}
	return nil
}
