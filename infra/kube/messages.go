package kube

import (
	"regexp"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
)

// Messages of Kubernetes' programs that carry information in no field.

// failing are the reasons for which a container waits after a failed start
// (pkg/kubelet/container/sync_result.go and pkg/kubelet/images/types.go of Kubernetes).
var failing = []string{
	crashLoopBackOff, "ErrImagePull", "ImagePullBackOff", "InvalidImageName", "ErrImageNeverPull", "ImageInspectError",
	"RegistryUnavailable", "SignatureValidationFailed", configError, "CreateContainerError", "RunContainerError", "PreCreateHookError",
	"PreStartHookError", "PostStartHookError",
}

// failsToStart reports whether a container waits for a reason that does not pass by itself.
func failsToStart(w *corev1.ContainerStateWaiting) bool {
	return w != nil && slices.Contains(failing, w.Reason)
}

// notYetCreated matches the kubelet's message about an object that a container refers to and that
// someone may still create.
var notYetCreated = regexp.MustCompile(`(?i)^(secret|configmap) "[^"]*" not found`)

// rejected reports whether the kubelet rejected a pod for lack of resources: the reason is "OutOf"
// and the resource, as in "OutOfpods".
func rejected(pod *corev1.Pod) bool { return strings.HasPrefix(pod.Status.Reason, "OutOf") }

// logRemoved begins the kubelet's answer, with status 200, to a request for the log of a container
// that it has removed.
const logRemoved = "unable to retrieve container logs for "

func isRemoved(log []byte) bool { return strings.HasPrefix(string(log), logRemoved) }

// lacksServiceAccount reports whether a pod is forbidden because the controller manager has not
// made its service account yet.
func lacksServiceAccount(err error) bool {
	return apierrors.IsForbidden(err) && strings.Contains(err.Error(), "service account")
}

// overQuota reports whether a ResourceQuota forbids something: "pods "x" is forbidden: exceeded
// quota: q, requested: ..., used: ..., limited: ...".
func overQuota(err error) bool {
	return apierrors.IsForbidden(err) && strings.Contains(err.Error(), " quota: ")
}

// connectionLost reports whether client-go lost the connection while it read an answer
// (rest.Request).
func connectionLost(err error) bool {
	return strings.Contains(err.Error(), "when reading response body")
}

// rolloutStatus returns the message of "kubectl rollout status" without its beginning.
func rolloutStatus(message string) string {
	if _, rest, ok := strings.Cut(message, " rollout to finish: "); ok {
		message = rest
	}
	return strings.TrimRight(message, ".\n")
}
