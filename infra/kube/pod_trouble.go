package kube

import (
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/foreign"
)

// Trouble is what keeps a pod from running, as the kubelet or the scheduler reports it.
type Trouble struct {
	Namespace string
	Pod       string
	Node      string // empty until the pod has a node
	Container string // empty when it concerns the whole pod
	Reason    string // "CrashLoopBackOff"
	Message   string
	// Passing is set if the trouble may end without a change to the pod: a node gets room, a Secret
	// is created, a probe succeeds later. It is reported, and the wait continues.
	Passing bool
	// Ran is set if the container has run and so has a log.
	Ran bool
	// Attempts is how many failed attempts events report. It is 0 if the pod's status reports the
	// trouble, because the status also shows when it is over.
	Attempts int
}

// String returns the text for people: "pod default/web-1 on worker-0, container web:
// CrashLoopBackOff: exit code 1 (Error), restarted 3 times".
func (t Trouble) String() string {
	var b strings.Builder
	fmt.Fprintf(&b, "pod %s/%s", t.Namespace, t.Pod)
	if t.Node != "" {
		fmt.Fprintf(&b, " on %s", t.Node)
	}
	if t.Container != "" {
		fmt.Fprintf(&b, ", container %s", t.Container)
	}
	fmt.Fprintf(&b, ": %s", t.Reason)
	if t.Message != "" {
		fmt.Fprintf(&b, ": %s", t.Message)
	}
	return b.String()
}

const (
	crashLoopBackOff  = "CrashLoopBackOff"
	configError       = "CreateContainerConfigError"
	notReady          = "NotReady"
	failedSandbox     = "FailedCreatePodSandBox"
	maxTroubleMessage = 600 // runes
)

// troubleOf returns what keeps a pod from running; nil if no cause is known. events are the pod's,
// in any order. Init containers come first, because the others wait for them.
func troubleOf(pod *corev1.Pod, events []corev1.Event) *Trouble {
	if pod.DeletionTimestamp != nil || pod.Status.Phase == corev1.PodSucceeded {
		return nil
	}
	found := wholePodTrouble(pod)
	for _, s := range slices.Concat(pod.Status.InitContainerStatuses, pod.Status.ContainerStatuses) {
		if found == nil {
			found = containerTrouble(s)
		}
		if found == nil {
			found = crashed(pod, s)
		}
	}
	if found == nil {
		found = eventTrouble(pod, events)
	}
	if found == nil {
		return nil
	}
	found.Namespace, found.Pod, found.Node = pod.Namespace, pod.Name, pod.Spec.NodeName
	found.Message = foreign.Line(found.Message, maxTroubleMessage)
	return found
}

// wholePodTrouble returns the trouble that the pod's phase and conditions show.
func wholePodTrouble(pod *corev1.Pod) *Trouble {
	if pod.Status.Phase == corev1.PodFailed {
		t := &Trouble{Reason: pod.Status.Reason, Message: pod.Status.Message}
		t.Passing = metav1.GetControllerOf(pod) != nil // which replaces it
		for _, s := range slices.Concat(pod.Status.InitContainerStatuses, pod.Status.ContainerStatuses) {
			if end := s.State.Terminated; end != nil && end.ExitCode != 0 {
				t.Container, t.Message, t.Ran = s.Name, ended(end), true
				break
			}
		}
		if t.Reason == "" {
			t.Reason = "Failed"
		}
		return t
	}
	for _, c := range pod.Status.Conditions {
		if c.Type == corev1.PodScheduled && c.Status == corev1.ConditionFalse {
			return &Trouble{Reason: c.Reason, Message: c.Message, Passing: true}
		}
	}
	return nil
}

// containerTrouble returns the trouble that a container's status shows.
func containerTrouble(s corev1.ContainerStatus) *Trouble {
	w := s.State.Waiting
	if !failsToStart(w) {
		return nil
	}
	t := &Trouble{Container: s.Name, Reason: w.Reason, Message: w.Message, Ran: s.LastTerminationState.Terminated != nil}
	if t.Ran && w.Reason == crashLoopBackOff {
		// The kubelet's own message only says how long it backs off.
		t.Message = fmt.Sprintf("%s, restarted %d times", ended(s.LastTerminationState.Terminated), s.RestartCount)
	}
	t.Passing = w.Reason == configError && notYetCreated.MatchString(w.Message)
	return t
}

// crashed returns the trouble of a container that has ended more than once and will be restarted.
// The kubelet backs off then, and reports that only when it next syncs the pod, which may be at the
// next start.
func crashed(pod *corev1.Pod, s corev1.ContainerStatus) *Trouble {
	end := s.State.Terminated
	if end == nil || end.ExitCode == 0 || s.RestartCount == 0 || pod.Spec.RestartPolicy == corev1.RestartPolicyNever {
		return nil
	}
	return &Trouble{Container: s.Name, Reason: crashLoopBackOff, Ran: true,
		Message: fmt.Sprintf("%s, restarted %d times", ended(end), s.RestartCount)}
}

// ended returns how a container ended: "exit code 1 (Error)".
func ended(end *corev1.ContainerStateTerminated) string {
	words := fmt.Sprintf("exit code %d", end.ExitCode)
	if end.Signal != 0 {
		words = fmt.Sprintf("signal %d", end.Signal)
	}
	if end.Reason != "" {
		words += " (" + end.Reason + ")"
	}
	if end.Message != "" {
		words += ": " + strings.TrimSpace(end.Message)
	}
	return words
}

// eventTrouble returns what only events report: why a pod with a node has no sandbox yet, and what
// a probe reports.
func eventTrouble(pod *corev1.Pod, events []corev1.Event) *Trouble {
	if pod.Spec.NodeName == "" {
		return nil
	}
	reasons := []string{failedSandbox, "FailedMount", "FailedAttachVolume", "NetworkNotReady"}
	if sandboxed(pod) {
		reasons = []string{"Unhealthy"}
	}
	var last *corev1.Event
	attempts := 0
	for i, e := range events {
		if slices.Contains(reasons, e.Reason) && (last == nil || !eventTime(e).Before(eventTime(*last))) {
			last = &events[i]
		}
		if e.Reason == failedSandbox {
			attempts += occurrences(e)
		}
	}
	if last == nil {
		return nil
	}
	t := &Trouble{Reason: last.Reason, Message: last.Message, Passing: last.Reason != failedSandbox}
	if !sandboxed(pod) {
		if last.Reason == failedSandbox {
			t.Attempts = attempts
		}
		return t
	}
	for _, s := range slices.Concat(pod.Status.InitContainerStatuses, pod.Status.ContainerStatuses) {
		if s.State.Running != nil && !s.Ready {
			t.Container, t.Reason, t.Ran = s.Name, notReady, true
			return t
		}
	}
	return nil
}

// steady reports whether a pod's containers without a readiness probe have been up long enough:
// they count as ready as soon as they start, even if they crash a second later. If the machine's
// clock is off, the result is early or late. A pod that has ended does not count: its controller
// keeps it and has made another.
func steady(pod *corev1.Pod, now time.Time) bool {
	if pod.Status.Phase == corev1.PodFailed || pod.Status.Phase == corev1.PodSucceeded {
		return true
	}
	for _, c := range pod.Spec.Containers {
		i := slices.IndexFunc(pod.Status.ContainerStatuses, func(s corev1.ContainerStatus) bool { return s.Name == c.Name })
		if c.ReadinessProbe != nil || i < 0 || pod.DeletionTimestamp != nil {
			continue
		}
		s, needs := pod.Status.ContainerStatuses[i], firstSteady
		if end := s.LastTerminationState.Terminated; end != nil && end.ExitCode != 0 {
			needs = failGrace
		}
		if s.State.Running == nil {
			return s.State.Terminated != nil && s.State.Terminated.ExitCode == 0
		}
		if up := now.Sub(s.State.Running.StartedAt.Time); up >= 0 && up < needs {
			return false
		}
	}
	return true
}

// sandboxed reports whether the pod's sandbox runs and has its network.
func sandboxed(pod *corev1.Pod) bool {
	return slices.ContainsFunc(pod.Status.Conditions, func(c corev1.PodCondition) bool {
		return c.Type == corev1.PodReadyToStartContainers && c.Status == corev1.ConditionTrue
	})
}

// eventTime returns when an event was last seen.
func eventTime(e corev1.Event) time.Time {
	t := e.LastTimestamp.Time
	if e.EventTime.After(t) {
		t = e.EventTime.Time
	}
	if e.Series != nil && e.Series.LastObservedTime.After(t) {
		t = e.Series.LastObservedTime.Time
	}
	return t
}

// occurrences returns how often an event has happened.
func occurrences(e corev1.Event) int {
	n := max(int(e.Count), 1)
	if e.Series != nil {
		n = max(n, int(e.Series.Count))
	}
	return n
}
