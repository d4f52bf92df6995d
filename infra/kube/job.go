package kube

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/watch"

	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/patience"
)

// JobRun is one run of a Job: what is known of a Job that may be gone. It is plain JSON.
type JobRun struct {
	Ref ObjectRef `json:"ref"`
	// UID is that of the Job. It is empty if the Job has never been seen.
	UID string `json:"uid,omitempty"`
	// Finished is set once the Job was seen to have completed. A Job that failed has not.
	Finished bool `json:"finished,omitempty"`

	// version is the state of the Job from which on it is followed.
	version string
	// removed is set if the Job is removed once it has finished.
	removed bool
	// failed is why the Job has failed.
	failed string
}

func isJob(o *unstructured.Unstructured) bool {
	return o.GetKind() == "Job" && o.GroupVersionKind().Group == batchv1.GroupName
}

// newRun returns the run of a Job of the cluster.
func newRun(o *unstructured.Unstructured) JobRun {
	_, ttl, _ := unstructured.NestedInt64(o.Object, "spec", "ttlSecondsAfterFinished")
	suspended, _, _ := unstructured.NestedBool(o.Object, "spec", "suspend")
	finished, failed := jobEnd(o)
	return JobRun{Ref: RefOf(o), UID: string(o.GetUID()), Finished: finished, version: o.GetResourceVersion(), removed: ttl && !suspended, failed: failed}
}

// jobEnd reports whether a Job has completed, and why it has failed.
func jobEnd(o *unstructured.Unstructured) (finished bool, failed string) {
	conditions, _, _ := unstructured.NestedSlice(o.Object, "status", "conditions")
	for _, c := range conditions {
		m, _ := c.(map[string]any)
		if m["status"] != string(corev1.ConditionTrue) {
			continue
		}
		switch m["type"] {
		case string(batchv1.JobComplete):
			return true, ""
		case string(batchv1.JobFailed):
			return false, fmt.Sprintf("failed: %v: %v", m["reason"], m["message"])
		}
	}
	return false, ""
}

// Runs returns what is known of the Jobs among the objects: of one that exists its present run, of
// another one the run that was known before.
func (c *Client) Runs(ctx context.Context, objects []*unstructured.Unstructured, before []JobRun) ([]JobRun, error) {
	var out []JobRun
	for _, o := range objects {
		if !isJob(o) {
			continue
		}
		ref := RefOf(o)
		var run JobRun
		if i := slices.IndexFunc(before, func(r JobRun) bool { return r.Ref.Same(ref) }); i >= 0 {
			run = before[i]
		}
		live, err := c.Get(ctx, ref)
		switch {
		case err != nil:
			return nil, err
		case live != nil:
			finished := run.Finished
			run = newRun(live)
			run.Finished = run.Finished || finished
		case run.UID == "":
			continue
		case !run.Finished:
			run.Finished = c.completed(ctx, run)
		}
		out = append(out, run)
	}
	return out, nil
}

// completed reports whether the Job controller has reported that a Job has completed which is gone.
// Events are kept for an hour.
func (c *Client) completed(ctx context.Context, run JobRun) bool {
	ctx, cancel := context.WithTimeout(ctx, patience.Of(ctx, requestTimeout))
	defer cancel()
	namespace := run.Ref.Namespace
	if namespace == "" {
		namespace = metav1.NamespaceDefault
	}
	events, err := c.typed.CoreV1().Events(namespace).List(ctx, metav1.ListOptions{
		FieldSelector: fields.Set{"involvedObject.uid": run.UID, "reason": "Completed"}.String()})
	return err == nil && len(events.Items) > 0
}

// follower follows a Job that is removed once it has finished: afterwards it could not be known
// whether it has finished.
type follower struct {
	mu     sync.Mutex
	run    JobRun
	failed string
	gone   bool
}

// followRetry is how long a follower waits before it asks again.
const followRetry = time.Second

// follow follows a Job until it has ended or the context has.
func (c *Client) follow(ctx context.Context, run JobRun) *follower {
	f := &follower{run: run, failed: run.failed}
	go func() {
		for !f.ended() && ctx.Err() == nil {
			if c.watch(ctx, f) != nil {
				select {
				case <-ctx.Done():
				case <-time.After(followRetry):
				}
			}
		}
	}()
	return f
}

// watch reads what happens to a Job until it has ended or the answer has. An error is that there is
// no answer.
func (c *Client) watch(ctx context.Context, f *follower) error {
	resource, _, err := c.resource(ctx, f.run.Ref, false)
	if err != nil {
		return err
	}
	w, err := resource.Watch(ctx, metav1.ListOptions{
		FieldSelector: fields.OneTermEqualSelector("metadata.name", f.run.Ref.Name).String(), ResourceVersion: f.run.version})
	if err != nil {
		return c.lookAgain(ctx, f, err)
	}
	defer w.Stop()
	for e := range w.ResultChan() {
		o, ok := e.Object.(*unstructured.Unstructured)
		if !ok || e.Type == watch.Error { // such as a version that is too old
			return c.lookAgain(ctx, f, fmt.Errorf("following %s: %v", f.run.Ref, e.Object))
		}
		if f.see(o, e.Type == watch.Deleted); f.ended() {
			return nil
		}
	}
	return ctx.Err()
}

// lookAgain reads a Job after its watch has failed.
func (c *Client) lookAgain(ctx context.Context, f *follower, because error) error {
	o, err := c.Get(ctx, f.run.Ref)
	switch {
	case err != nil:
		return err
	case o != nil:
		f.see(o, false)
	default:
		finished := c.completed(ctx, f.run)
		f.mu.Lock()
		f.run.Finished, f.gone = finished, true
		f.mu.Unlock()
	}
	return because
}

// see notes what a Job is like.
func (f *follower) see(o *unstructured.Unstructured, gone bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if string(o.GetUID()) != f.run.UID {
		f.gone = true // and someone has made another one
		return
	}
	f.run.version = o.GetResourceVersion()
	f.run.Finished, f.failed = jobEnd(o)
	f.gone = gone
}

func (f *follower) ended() bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.gone || f.run.Finished || f.failed != ""
}

// status returns how the Job is, whether its end is known, and an error if it has failed.
func (f *follower) status() (message string, done bool, err error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	switch {
	case f.run.Finished:
		return "", true, nil
	case f.failed != "":
		return "", false, fmt.Errorf("%s: %s", f.run.Ref, f.failed)
	case f.gone:
		return "", false, fmt.Errorf("%s: deleted before it had completed", f.run.Ref)
	}
	return "not completed yet", false, nil
}
