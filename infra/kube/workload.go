package kube

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/kubectl/pkg/polymorphichelpers"
)

// WaitWorkloads waits until every Deployment, DaemonSet and StatefulSet among
// the objects has rolled out, judged as "kubectl rollout status" does, and its
// pods have stayed up for a moment where no readiness probe says so. It ends
// early when a Deployment has exceeded its own progress deadline, and with a
// *PodError when one of their pods, or of a Job among the objects, has been
// failing for failGrace. progress, when given, is told each workload once, as
// it becomes available, and what keeps pods from running.
func (c *Client) WaitWorkloads(ctx context.Context, objects []*unstructured.Unstructured, progress func(string)) error {
	w := workloadWait{client: c, progress: progress}
	for _, o := range objects {
		if _, err := polymorphichelpers.StatusViewerFor(o.GroupVersionKind().GroupKind()); err == nil {
			w.pending = append(w.pending, &workload{ref: RefOf(o), status: "not looked at yet"})
		} else if o.GetKind() == "Job" {
			w.jobs = append(w.jobs, &workload{ref: RefOf(o)})
		}
	}
	err := wait.PollUntilContextCancel(ctx, pollInterval, true, w.look)
	if err != nil && ctx.Err() != nil {
		return fmt.Errorf("waiting for workloads: %w (last: %s)", context.Cause(ctx), strings.Join(w.words(), "; "))
	}
	return err
}

// workloadWait is one wait for workloads.
type workloadWait struct {
	client   *Client
	progress func(string)
	// pending are those not yet available. jobs are never waited for, but what
	// the others wait for may be what they do.
	pending, jobs []*workload
	patience      patience
	looked        time.Time // when pods were looked at last
}

// workload is something that pods are made for.
type workload struct {
	ref      ObjectRef
	status   string    // what the workload itself says
	troubles []Trouble // what its pods say
	told     string    // what progress was told of them
}

func (w *workload) String() string {
	if w.status == "" {
		return w.ref.String()
	}
	return w.ref.String() + ": " + w.status
}

// look takes one look. An error ends the wait.
func (w *workloadWait) look(ctx context.Context) (bool, error) {
	var failed error
	w.pending = slices.DeleteFunc(w.pending, func(x *workload) bool {
		status, done, err := w.client.rolledOut(ctx, x.ref)
		if done && err == nil {
			if done = w.client.stayedUp(ctx, x.ref); !done {
				status = "its pods have yet to stay up"
			}
		}
		if ctx.Err() == nil {
			x.status = status
		}
		if err != nil && failed == nil {
			failed = fmt.Errorf("%w%s", err, troubleWords(x.troubles))
		}
		if done && err == nil {
			w.tell(x.ref.String() + " is available")
		}
		return done && err == nil
	})
	if failed != nil || len(w.pending) == 0 {
		return failed == nil, failed
	}
	if time.Since(w.looked) < lookInterval {
		return false, nil
	}
	w.looked = time.Now()
	return false, w.lookAtPods(ctx)
}

// lookAtPods finds out what keeps pods from running, and gives up on those
// that have failed for too long.
func (w *workloadWait) lookAtPods(ctx context.Context) error {
	var all []Trouble
	of := map[spellKey]*workload{}
	for _, x := range slices.Concat(w.pending, w.jobs) {
		pods, err := w.client.podsOf(ctx, x.ref)
		if err != nil {
			return nil //nolint:nilerr // the API server may be away for a moment; the wait is bounded
		}
		x.troubles = nil
		for i := range pods {
			if t := w.client.diagnose(ctx, &pods[i]); t != nil {
				x.troubles = append(x.troubles, *t)
				of[t.key()] = x
			}
		}
		all = append(all, x.troubles...)
		w.tellTroubles(x)
	}
	over := w.patience.lost(time.Now(), all)
	if len(over) == 0 {
		return nil
	}
	return w.client.podError(ctx, of[over[0].key()].String(), over[0], len(over)-1)
}

// tellTroubles tells what a workload's first pod in trouble says, when that is
// new. How often it was restarted is not.
func (w *workloadWait) tellTroubles(x *workload) {
	if len(x.troubles) == 0 {
		return
	}
	t := x.troubles[0]
	if news := t.Pod + t.Reason; news != x.told {
		x.told = news
		w.tell(x.ref.String() + ": " + t.String())
	}
}

func (w *workloadWait) tell(what string) {
	if w.progress != nil {
		w.progress(what)
	}
}

// words say what is still waited for and why.
func (w *workloadWait) words() []string {
	var out []string
	for _, x := range w.pending {
		out = append(out, x.String()+troubleWords(x.troubles))
	}
	for _, x := range w.jobs {
		if len(x.troubles) > 0 {
			out = append(out, x.String()+troubleWords(x.troubles))
		}
	}
	return out
}

// troubleWords are what to add to the status of a workload: the first of its
// pods that does not run, and how many more do not.
func troubleWords(troubles []Trouble) string {
	if len(troubles) == 0 {
		return ""
	}
	words := ": " + troubles[0].String()
	if more := len(troubles) - 1; more > 0 {
		words += fmt.Sprintf(" (and %d more)", more)
	}
	return words
}

// stayedUp tells whether the pods of an available workload have stayed up.
func (c *Client) stayedUp(ctx context.Context, ref ObjectRef) bool {
	pods, err := c.podsOf(ctx, ref)
	return err == nil && !slices.ContainsFunc(pods, func(p corev1.Pod) bool { return !steady(&p, time.Now()) })
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
	message = rolloutStatus(message)
	if why := unmade(o); why != "" {
		message += ": " + why
	}
	return message, done, nil
}
