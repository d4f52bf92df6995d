package addons

import (
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/kube"
)

func jobs(image string) []*unstructured.Unstructured {
	return []*unstructured.Unstructured{{Object: map[string]any{
		"apiVersion": "batch/v1", "kind": "Job", "metadata": map[string]any{"name": "migrate", "namespace": "x"}, "spec": map[string]any{"image": image}}}}
}

// TestRecordOfFailedUpdate: a Job that has completed does not run again after an update that failed,
// whichever of the two manifests is applied next.
func TestRecordOfFailedUpdate(t *testing.T) {
	v1, v2 := jobs("v1"), jobs("v2")
	run := []kube.JobRun{{Ref: kube.RefOf(v1[0]), UID: "a", Finished: true}}
	done := func(rec addonRecord, objects []*unstructured.Unstructured) bool {
		runs := rec.runs(objects)
		return len(runs) == 1 && runs[0].Finished
	}

	var rec addonRecord
	rec.keep(run, v2) // of an update from v1 to v2 that failed
	before := rec.Jobs
	rec.keep(nil, v1) // a refresh with the old manifests finds no Job
	rec.retain(before, nil)
	if !done(rec, v2) {
		t.Errorf("the refresh has lost the run of v2: %v", rec.Jobs)
	}

	rec = addonRecord{}
	rec.keep(run, v1)
	before = rec.Jobs
	rec.keep(nil, v2) // an update that failed before it changed the Job
	rec.retain(before, nil)
	if !done(rec, v1) || len(rec.runs(v2)) != 0 {
		t.Errorf("the failed update has lost the run of v1: %v", rec.Jobs)
	}

	before = rec.Jobs
	rec.keep(run, v2) // and one that has changed it
	rec.retain(before, run)
	if !done(rec, v2) || len(rec.runs(v1)) != 0 {
		t.Errorf("the records are %v", rec.Jobs)
	}
}
