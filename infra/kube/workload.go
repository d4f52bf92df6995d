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

// WaitWorkloads waits until every Deployment, DaemonSet and StatefulSet among the objects has
// rolled out, as "kubectl rollout status" defines it, and until pods without a readiness probe have
// stayed up for a moment. Of the Jobs it waits for the runs that are removed once they have
// finished, and returns all runs as they are then. It ends early if a Deployment has exceeded its
// progress deadline, if such a Job has failed, and with a *PodError if a pod of a workload, or of a
// Job among the objects, has been failing for failGrace. progress, if not nil, is called once per
// workload when it becomes available, and with what keeps pods from running.
func (c *Client) WaitWorkloads(ctx context.Context, objects []*unstructured.Unstructured, runs []JobRun, progress func(string)) ([]JobRun, error) {
	w := workloadWait{client: c, progress: progress}
	following, stop := context.WithCancel(ctx)
	defer stop()
	followers := make([]*follower, len(runs))
	for i, run := range runs {
		if run.removed && !run.Finished {
			followers[i] = c.follow(following, run)
			w.pending = append(w.pending, &workload{ref: run.Ref, job: followers[i], status: "not checked yet"})
		}
	}
	for _, o := range objects {
		ref := RefOf(o)
		if _, err := polymorphichelpers.StatusViewerFor(o.GroupVersionKind().GroupKind()); err == nil {
			w.pending = append(w.pending, &workload{ref: ref, status: "not checked yet"})
		} else if isJob(o) && !slices.ContainsFunc(w.pending, func(x *workload) bool { return x.ref.Same(ref) }) {
			w.jobs = append(w.jobs, &workload{ref: ref})
		}
	}
	err := wait.PollUntilContextCancel(ctx, pollInterval, true, w.look)
	out := slices.Clone(runs)
	for i, f := range followers {
		if f != nil {
			f.mu.Lock()
			out[i] = f.run
			f.mu.Unlock()
		}
	}
	if err != nil && ctx.Err() != nil {
		return out, fmt.Errorf("waiting for workloads: %w (last: %s)", context.Cause(ctx), strings.Join(w.words(), "; "))
	}
	return out, err
}

// workloadWait is one wait for workloads.
type workloadWait struct {
	client   *Client
	progress func(string)
	// pending are the workloads that are not available yet, and Jobs that are waited for. The other
	// jobs are not waited for, but workloads may depend on them.
	pending, jobs []*workload
	patience      podPatience
	looked        time.Time // when pods were last observed
}

// workload is an object that pods are made for.
type workload struct {
	ref      ObjectRef
	job      *follower // of a Job that is waited for
	status   string    // of the workload itself
	troubles []Trouble // of its pods
	reported string    // what progress was last called with
}

func (w *workload) String() string {
	if w.status == "" {
		return w.ref.String()
	}
	return w.ref.String() + ": " + w.status
}

// look checks once. An error ends the wait.
func (w *workloadWait) look(ctx context.Context) (bool, error) {
	var failed error
	w.pending = slices.DeleteFunc(w.pending, func(x *workload) bool {
		status, done, err := w.status(ctx, x)
		if done && err == nil && x.job == nil {
			if done = w.client.stayedUp(ctx, x.ref); !done {
				status = "its pods have not been up long enough yet"
			}
		}
		if ctx.Err() == nil {
			x.status = status
		}
		if err != nil && failed == nil {
			failed = fmt.Errorf("%w%s", err, troubleWords(x.troubles))
		}
		switch {
		case !done || err != nil:
		case x.job != nil:
			w.tell(x.ref.String() + " has completed")
		default:
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

// status returns how a workload is, whether it is as wanted, and an error if waiting cannot help.
func (w *workloadWait) status(ctx context.Context, x *workload) (message string, done bool, err error) {
	if x.job != nil {
		return x.job.status()
	}
	return w.client.rolledOut(ctx, x.ref)
}

// lookAtPods finds out what keeps pods from running, and returns an error if a pod has failed for
// too long.
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
		w.reportTroubles(x)
	}
	over := w.patience.lost(time.Now(), all)
	if len(over) == 0 {
		return nil
	}
	return w.client.podError(ctx, of[over[0].key()].String(), over[0], len(over)-1)
}

// reportTroubles reports a workload's first pod in trouble if the report is new. A new number of
// restarts alone is not reported.
func (w *workloadWait) reportTroubles(x *workload) {
	if len(x.troubles) == 0 {
		return
	}
	t := x.troubles[0]
	if news := t.Pod + t.Reason; news != x.reported {
		x.reported = news
		w.tell(x.ref.String() + ": " + t.String())
	}
}

func (w *workloadWait) tell(what string) {
	if w.progress != nil {
		w.progress(what)
	}
}

// words returns what is still waited for and why.
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

// troubleWords returns the addition to a workload's status: its first pod that does not run, and
// how many others do not.
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

// stayedUp reports whether the pods of an available workload have stayed up.
func (c *Client) stayedUp(ctx context.Context, ref ObjectRef) bool {
	pods, err := c.podsOf(ctx, ref)
	return err == nil && !slices.ContainsFunc(pods, func(p corev1.Pod) bool { return !steady(&p, time.Now()) })
}

// rolledOut returns an error only if waiting cannot help.
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
	if why := cannotMakePods(o); why != "" {
		message += ": " + why
	}
	return message, done, nil
}
