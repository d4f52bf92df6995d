package kube

import (
	"regexp"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
)

// What the programs of Kubernetes say in words alone, and is read here because
// no field tells it.

// failing are the reasons for which the kubelet has a container wait although
// it has tried to start it (pkg/kubelet/container/sync_result.go and
// pkg/kubelet/images/types.go of Kubernetes).
var failing = []string{
	crashLoopBackOff, "ErrImagePull", "ImagePullBackOff", "InvalidImageName", "ErrImageNeverPull", "ImageInspectError",
	"RegistryUnavailable", "SignatureValidationFailed", configError, "CreateContainerError", "RunContainerError", "PreCreateHookError",
	"PreStartHookError", "PostStartHookError",
}

// failsToStart tells whether a container waits for a reason that will not pass by itself.
func failsToStart(w *corev1.ContainerStateWaiting) bool {
	return w != nil && slices.Contains(failing, w.Reason)
}

// toCome matches what the kubelet says of an object that a container refers
// to and that somebody may yet make.
var toCome = regexp.MustCompile(`(?i)^(secret|configmap) "[^"]*" not found`)

// turnedAway tells whether the kubelet has not let a pod in for want of room:
// its reason is "OutOf" and what it lacks, "OutOfpods".
func turnedAway(pod *corev1.Pod) bool { return strings.HasPrefix(pod.Status.Reason, "OutOf") }

// logRemoved begins what the kubelet answers, with status 200, for the log of a
// container that it has removed.
const logRemoved = "unable to retrieve container logs for "

func isRemoved(log []byte) bool { return strings.HasPrefix(string(log), logRemoved) }

// lacksServiceAccount tells whether a pod is forbidden because the controller
// manager has yet to make its service account.
func lacksServiceAccount(err error) bool {
	return apierrors.IsForbidden(err) && strings.Contains(err.Error(), "service account")
}

// overQuota tells whether a ResourceQuota forbids something: "pods "x" is
// forbidden: exceeded quota: q, requested: ..., used: ..., limited: ...".
func overQuota(err error) bool {
	return apierrors.IsForbidden(err) && strings.Contains(err.Error(), " quota: ")
}

// lostMeanwhile tells whether client-go has lost the connection while it read an
// answer (rest.Request).
func lostMeanwhile(err error) bool {
	return strings.Contains(err.Error(), "when reading response body")
}

// rolloutStatus is what "kubectl rollout status" says of a workload, without its beginning.
func rolloutStatus(message string) string {
	if _, rest, ok := strings.Cut(message, " rollout to finish: "); ok {
		message = rest
	}
	return strings.TrimRight(message, ".\n")
}
