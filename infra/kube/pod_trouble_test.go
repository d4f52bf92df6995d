package kube

import (
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/yaml"
)

func podOf(t *testing.T, manifest string) *corev1.Pod {
	t.Helper()
	p := &corev1.Pod{}
	if err := yaml.UnmarshalStrict([]byte(manifest), p); err != nil {
		t.Fatal(err)
	}
	p.Namespace, p.Name = "default", "web-1"
	return p
}

func TestTroubleOf(t *testing.T) {
	event := func(reason, message string, second int) corev1.Event {
		return corev1.Event{Reason: reason, Message: message, LastTimestamp: metav1.Unix(int64(second), 0)}
	}
	sandbox := event(failedSandbox, "Failed to create pod sandbox: failed to get sandbox image", 2)
	for _, tt := range []struct {
		name, pod string
		events    []corev1.Event
		want      string
		passing   bool
		ran       bool
	}{
		{"running", "{spec: {nodeName: w}, status: {phase: Running, containerStatuses: [{name: c, ready: true, state: {running: {}}}]}}", nil, "", false, false},
		{"starting", "{spec: {nodeName: w}, status: {phase: Pending, containerStatuses: [{name: c, state: {waiting: {reason: ContainerCreating}}}]}}", nil, "", false, false},
		{"deleted", "{metadata: {deletionTimestamp: '2026-01-01T00:00:00Z'}, status: {containerStatuses: [{name: c, state: {waiting: {reason: CrashLoopBackOff}}}]}}", nil, "", false, false},
		{"crash loop", `{spec: {nodeName: w}, status: {phase: Running, containerStatuses: [{name: ok, state: {running: {}}}, {name: c, restartCount: 3,
			state: {waiting: {reason: CrashLoopBackOff, message: back-off 10s}}, lastState: {terminated: {exitCode: 1, reason: Error, message: "no  such\nfile"}}}]}}`, nil,
			"pod default/web-1 on w, container c: CrashLoopBackOff: exit code 1 (Error): no such file, restarted 3 times", false, true},
		{"killed for memory", `{spec: {nodeName: w}, status: {containerStatuses: [{name: c, restartCount: 2,
			state: {waiting: {reason: CrashLoopBackOff}}, lastState: {terminated: {exitCode: 137, reason: OOMKilled}}}]}}`, nil,
			"pod default/web-1 on w, container c: CrashLoopBackOff: exit code 137 (OOMKilled), restarted 2 times", false, true},
		{"between two crashes", `{spec: {nodeName: w}, status: {phase: Running, containerStatuses: [{name: c, ready: true, restartCount: 1,
			state: {running: {}}, lastState: {terminated: {exitCode: 1}}}]}}`, nil, "", false, false},
		{"crashed once", `{spec: {nodeName: w}, status: {phase: Running, containerStatuses: [{name: c, state: {terminated: {exitCode: 1, reason: Error}}}]}}`, nil, "", false, false},
		{"crashed again, before the kubelet says that it backs off", `{spec: {nodeName: w}, status: {phase: Running, containerStatuses: [{name: c, restartCount: 2,
			state: {terminated: {exitCode: 1, reason: Error}}, lastState: {terminated: {exitCode: 1}}}]}}`, nil,
			"pod default/web-1 on w, container c: CrashLoopBackOff: exit code 1 (Error), restarted 2 times", false, true},
		{"init container", `{spec: {nodeName: w}, status: {phase: Pending, initContainerStatuses: [{name: i, restartCount: 1,
			state: {waiting: {reason: CrashLoopBackOff}}, lastState: {terminated: {exitCode: 2}}}], containerStatuses: [{name: c, state: {waiting: {reason: PodInitializing}}}]}}`, nil,
			"pod default/web-1 on w, container i: CrashLoopBackOff: exit code 2, restarted 1 times", false, true},
		{"no image", `{spec: {nodeName: w}, status: {phase: Pending, containerStatuses: [{name: c, state: {waiting: {reason: ImagePullBackOff, message: 'Back-off pulling image "x"'}}}]}}`, nil,
			`pod default/web-1 on w, container c: ImagePullBackOff: Back-off pulling image "x"`, false, false},
		{"a first refused pull", `{spec: {nodeName: w}, status: {containerStatuses: [{name: c, state: {waiting: {reason: ErrImagePull, message: not found}}}]}}`, nil,
			"pod default/web-1 on w, container c: ErrImagePull: not found", false, false},
		{"no image name", `{spec: {nodeName: w}, status: {containerStatuses: [{name: c, state: {waiting: {reason: InvalidImageName}}}]}}`, nil,
			"pod default/web-1 on w, container c: InvalidImageName", false, false},
		{"no such command", `{spec: {nodeName: w}, status: {containerStatuses: [{name: c, state: {waiting: {reason: RunContainerError, message: exec}}}]}}`, nil,
			"pod default/web-1 on w, container c: RunContainerError: exec", false, false},
		{"root forbidden", `{spec: {nodeName: w}, status: {containerStatuses: [{name: c, state: {waiting: {reason: CreateContainerConfigError, message: image will run as root}}}]}}`, nil,
			"pod default/web-1 on w, container c: CreateContainerConfigError: image will run as root", false, false},
		{"a secret that does not exist yet", `{spec: {nodeName: w}, status: {containerStatuses: [{name: c, state: {waiting: {reason: CreateContainerConfigError, message: 'secret "s" not found'}}}]}}`, nil,
			`pod default/web-1 on w, container c: CreateContainerConfigError: secret "s" not found`, true, false},
		{"no node", `{status: {phase: Pending, conditions: [{type: PodScheduled, status: "False", reason: Unschedulable, message: "0/1 nodes are available: 1 Insufficient cpu."}]}}`, nil,
			"pod default/web-1: Unschedulable: 0/1 nodes are available: 1 Insufficient cpu.", true, false},
		{"no sandbox", `{spec: {nodeName: w}, status: {phase: Pending, containerStatuses: [{name: c, state: {waiting: {reason: ContainerCreating}}}]}}`,
			[]corev1.Event{sandbox, event(failedSandbox, "an older one", 1)}, "pod default/web-1 on w: FailedCreatePodSandBox: Failed to create pod sandbox: failed to get sandbox image", false, false},
		{"no sandbox, once", `{spec: {nodeName: w}, status: {phase: Pending, conditions: [{type: PodReadyToStartContainers, status: "True"}]}}`, []corev1.Event{sandbox}, "", false, false},
		{"no volume", `{spec: {nodeName: w}, status: {phase: Pending, conditions: [{type: PodReadyToStartContainers, status: "False"}]}}`,
			[]corev1.Event{event("FailedMount", `configmap "x" not found`, 1)}, `pod default/web-1 on w: FailedMount: configmap "x" not found`, true, false},
		{"not ready", `{spec: {nodeName: w}, status: {phase: Running, conditions: [{type: PodReadyToStartContainers, status: "True"}], containerStatuses: [{name: c, state: {running: {}}}]}}`,
			[]corev1.Event{event("Unhealthy", "Readiness probe failed: 503", 1)}, "pod default/web-1 on w, container c: NotReady: Readiness probe failed: 503", true, true},
		{"turned away", `{spec: {nodeName: w}, status: {phase: Failed, reason: Evicted, message: "The node had condition: [DiskPressure]."}}`, nil,
			"pod default/web-1 on w: Evicted: The node had condition: [DiskPressure].", false, false},
		{"turned away and replaced", `{metadata: {ownerReferences: [{kind: ReplicaSet, controller: true}]}, spec: {nodeName: w}, status: {phase: Failed, reason: Evicted}}`, nil,
			"pod default/web-1 on w: Evicted", true, false},
		{"failed for good", `{spec: {nodeName: w}, status: {phase: Failed, containerStatuses: [{name: c, state: {terminated: {exitCode: 3, reason: Error}}}]}}`, nil,
			"pod default/web-1 on w, container c: Failed: exit code 3 (Error)", false, true},
		{"a long story", `{spec: {nodeName: w}, status: {containerStatuses: [{name: c, state: {waiting: {reason: RunContainerError, message: ` + strings.Repeat("é", 700) + `}}}]}}`, nil,
			"pod default/web-1 on w, container c: RunContainerError: " + strings.Repeat("é", 600) + "...", false, false},
	} {
		t.Run(tt.name, func(t *testing.T) {
			got := troubleOf(podOf(t, tt.pod), tt.events)
			if got == nil {
				if tt.want != "" {
					t.Errorf("nothing, wanted %q", tt.want)
				}
				return
			}
			if got.String() != tt.want || got.Passing != tt.passing || got.Ran != tt.ran {
				t.Errorf("%q, passing %v, ran %v; wanted %q, %v, %v", got, got.Passing, got.Ran, tt.want, tt.passing, tt.ran)
			}
		})
	}
}

func TestPatience(t *testing.T) {
	a, b := Trouble{Pod: "a"}, Trouble{Pod: "b"}
	passing := Trouble{Pod: "p", Passing: true}
	type look struct {
		after time.Duration // since the one before
		found []Trouble
		lost  []string
	}
	every := func(n int, after time.Duration, found ...Trouble) []look {
		return slices.Repeat([]look{{after: after, found: found}}, n)
	}
	for _, tt := range []struct {
		name  string
		looks []look
	}{
		{"fails all the time", append(every(20, time.Second, a), look{time.Second, []Trouble{a}, []string{"a"}})},
		{"crashes, is started, crashes", slices.Concat(every(10, time.Second, a), every(9, time.Second), every(1, time.Second, a), []look{{time.Second, []Trouble{a}, []string{"a"}}})},
		{"is started and stays up", slices.Concat(every(19, time.Second, a), every(20, time.Second), every(20, time.Second, a), []look{{time.Second, []Trouble{a}, []string{"a"}}})},
		{"something else may end it", every(60, time.Second, passing)},
		{"the API server was away", slices.Concat(every(1, time.Second, a), every(1, time.Minute, a), every(10, time.Second, a))},
		{"the longest failing first", slices.Concat(every(1, time.Second, b), every(20, time.Second, a, b)[:19], []look{{time.Second, []Trouble{a, b}, []string{"b"}}, {time.Second, []Trouble{a, b}, []string{"b", "a"}}})},
	} {
		t.Run(tt.name, func(t *testing.T) {
			var p podPatience
			now := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
			for i, l := range tt.looks {
				now = now.Add(l.after)
				var lost []string
				for _, x := range p.lost(now, l.found) {
					lost = append(lost, x.Pod)
				}
				if !slices.Equal(lost, l.lost) {
					t.Fatalf("look %d: lost %q, wanted %q", i, lost, l.lost)
				}
			}
		})
	}
}

// TestSteadyEnded checks that ended pods kept by a controller do not count.
func TestSteadyEnded(t *testing.T) {
	now := time.Date(2026, 1, 1, 0, 1, 0, 0, time.UTC)
	for _, tt := range []struct {
		name, pod string
		want      bool
	}{
		{"crashed", "{spec: {containers: [{name: c}]}, status: {phase: Running, containerStatuses: [{name: c, state: {terminated: {exitCode: 1}}}]}}", false},
		{"its node was shut down", "{spec: {containers: [{name: c}]}, status: {phase: Failed, reason: Terminated, containerStatuses: [{name: c, state: {terminated: {exitCode: 137}}}]}}", true},
		{"evicted, its containers never seen to end", "{spec: {containers: [{name: c}]}, status: {phase: Failed, reason: Evicted, containerStatuses: [{name: c, state: {waiting: {reason: ContainerCreating}}}]}}", true},
		{"succeeded, as the node went down", "{spec: {containers: [{name: c}]}, status: {phase: Succeeded, containerStatuses: [{name: c, state: {waiting: {}}}]}}", true},
	} {
		if got := steady(podOf(t, tt.pod), now); got != tt.want {
			t.Errorf("%s: %v, wanted %v", tt.name, got, tt.want)
		}
	}
}

// TestSandboxPatience checks that one or two failures to make a sandbox are tolerated, and that
// repeated failures end the wait soon.
func TestSandboxPatience(t *testing.T) {
	pod := podOf(t, "{spec: {nodeName: w}, status: {phase: Pending}}")
	for _, tt := range []struct {
		name     string
		old      int   // events before the wait
		failures []int // seconds at which further events come
		distinct bool  // each with its own message, and so an event of its own
		until    int
		lost     int // second, or 0 for never
	}{
		{"a first pull times out, the second is slow", 0, []int{1}, false, 120, 0},
		{"two pulls time out, the third is slow", 0, []int{1, 14}, false, 120, 0},
		{"no such image", 0, []int{1, 13, 25}, false, 60, 25},
		{"no such image, retried as seldom as can be", 0, []int{1, 16, 31}, false, 60, 31},
		{"no network, whose messages name the sandbox", 0, []int{1, 13, 25}, true, 60, 25},
		{"attempts in a row", 0, []int{1, 2, 3}, false, 60, 21},
		{"failed before the wait, and no more", 20, nil, false, 120, 0},
		{"failed before the wait, and does so still", 20, []int{6, 18}, false, 60, 20},
	} {
		t.Run(tt.name, func(t *testing.T) {
			var (
				p      podPatience
				events []corev1.Event
				lost   int
				start  = time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
			)
			if tt.old > 0 {
				events = []corev1.Event{{Reason: failedSandbox, Count: int32(tt.old), LastTimestamp: metav1.NewTime(start)}}
			}
			for second := 0; second <= tt.until && lost == 0; second++ {
				now := start.Add(time.Duration(second) * time.Second)
				if slices.Contains(tt.failures, second) {
					if len(events) == 0 || tt.distinct {
						events = append(events, corev1.Event{Reason: failedSandbox})
					}
					last := &events[len(events)-1]
					last.Count, last.LastTimestamp = last.Count+1, metav1.NewTime(now)
				}
				var found []Trouble
				if trouble := troubleOf(pod, events); trouble != nil {
					found = []Trouble{*trouble}
				}
				if len(p.lost(now, found)) > 0 {
					lost = second
				}
			}
			if lost != tt.lost {
				t.Errorf("given up at second %d, wanted %d", lost, tt.lost)
			}
		})
	}
}

func TestPodError(t *testing.T) {
	e := &PodError{For: "Deployment default/web: 0 of 1 updated replicas are available", More: 1,
		Trouble: Trouble{Namespace: "default", Pod: "web-1", Node: "w", Container: "c", Reason: crashLoopBackOff, Ran: true},
		Log:     logEnd("one  \n\n" + strings.Repeat("x", 300) + "\nbad \xff byte\n")}
	want := `Deployment default/web: 0 of 1 updated replicas are available: pod default/web-1 on w, container c: CrashLoopBackOff (and 1 more)
last lines of the log of c:
one
` + strings.Repeat("x", 200) + `...
bad ? byte`
	if got := e.Error(); got != want {
		t.Errorf("%q, wanted\n%q", got, want)
	}
	e.Log = nil
	if got := e.Error(); !strings.HasSuffix(got, "\nits log is empty") {
		t.Errorf("without a log: %q", got)
	}
}

func TestSteady(t *testing.T) {
	now := time.Date(2026, 1, 1, 0, 1, 0, 0, time.UTC)
	const crashed = ", lastState: {terminated: {exitCode: 1}}"
	for _, tt := range []struct {
		name, spec, status string
		want               bool
	}{
		{"just started", "name: c", "state: {running: {startedAt: '2026-01-01T00:00:58Z'}}", false},
		{"up for a while", "name: c", "state: {running: {startedAt: '2026-01-01T00:00:57Z'}}", true},
		{"up again after a crash", "name: c", "state: {running: {startedAt: '2026-01-01T00:00:45Z'}}" + crashed, false},
		{"up for long after a crash", "name: c", "state: {running: {startedAt: '2026-01-01T00:00:40Z'}}" + crashed, true},
		{"down after a crash", "name: c", "state: {waiting: {reason: CrashLoopBackOff}}" + crashed, false},
		{"a probe says so", "name: c, readinessProbe: {}", "state: {running: {startedAt: '2026-01-01T00:00:59Z'}}" + crashed, true},
		{"a clock that is ahead", "name: c", "state: {running: {startedAt: '2026-01-01T00:01:05Z'}}", true},
	} {
		p := podOf(t, "{spec: {containers: [{"+tt.spec+"}]}, status: {containerStatuses: [{name: c, "+tt.status+"}]}}")
		if got := steady(p, now); got != tt.want {
			t.Errorf("%s: %v, wanted %v", tt.name, got, tt.want)
		}
	}
}
