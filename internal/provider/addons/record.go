package addons

import (
	"slices"

	"github.com/hashicorp/terraform-plugin-framework/attr"
	"github.com/hashicorp/terraform-plugin-framework/types"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/finding"
	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/kube"
)

// addonRecord is what an addon keeps in private state: its claim, the objects that it has applied,
// the runs of its Jobs, and what a refresh has found to be immutable.
type addonRecord struct {
	Claim   string           `json:"claim"`
	Objects []kube.ObjectRef `json:"objects"`
	Jobs    []jobRecord      `json:"jobs,omitempty"`
	// Immutable are objects with fields that are not as wanted and cannot be changed, and the fields.
	Immutable map[string]string `json:"immutable,omitempty"`
}

// jobRecord is a run of a Job, with the digest of the manifest that it has run.
type jobRecord struct {
	kube.JobRun

	Digest string `json:"digest"`
}

// inventoryKey is the private-state entry of addonRecord.
const inventoryKey = "inventory"

// runs returns the runs of the Jobs among the objects whose manifests are still the same.
func (r addonRecord) runs(objects []*unstructured.Unstructured) (out []kube.JobRun) {
	for _, j := range r.Jobs {
		if slices.ContainsFunc(objects, func(o *unstructured.Unstructured) bool { return kube.RefOf(o).Same(j.Ref) && digest(o) == j.Digest }) {
			out = append(out, j.JobRun)
		}
	}
	return out
}

// keep records the runs of the Jobs among the objects.
func (r *addonRecord) keep(runs []kube.JobRun, objects []*unstructured.Unstructured) {
	r.Jobs = nil
	for _, run := range runs {
		for _, o := range objects {
			if kube.RefOf(o).Same(run.Ref) {
				r.Jobs = append(r.Jobs, jobRecord{run, digest(o)})
			}
		}
	}
}

// retain puts back the runs from before of manifests that are not recorded now, except those of Jobs
// with one of the given runs. After a failed update the next apply may want such a manifest again.
func (r *addonRecord) retain(before []jobRecord, but []kube.JobRun) {
	for _, j := range before {
		recorded := slices.ContainsFunc(r.Jobs, func(o jobRecord) bool { return o.Ref.Same(j.Ref) && o.Digest == j.Digest })
		if !recorded && !slices.ContainsFunc(but, func(o kube.JobRun) bool { return o.Ref.Same(j.Ref) }) {
			r.Jobs = append(r.Jobs, j)
		}
	}
}

// note records which objects a refresh has found to be immutable.
func (r *addonRecord) note(drift []finding.Finding) {
	r.Immutable = nil
	for _, f := range drift {
		if f.Kind == finding.Object && f.Problem == finding.Replaced {
			if r.Immutable == nil {
				r.Immutable = map[string]string{}
			}
			r.Immutable[f.Subject] = f.Target
		}
	}
}

// finished returns the names of the Jobs that have completed.
func finished(runs []kube.JobRun) types.Set {
	out := []attr.Value{}
	for _, r := range runs {
		if r.Finished {
			out = append(out, types.StringValue(r.Ref.String()))
		}
	}
	return types.SetValueMust(types.StringType, out)
}

// plannedJobs returns what an apply makes of the Jobs that have completed. It is unknown if one of
// the Jobs among the objects may complete.
func plannedJobs(runs []kube.JobRun, objects []*unstructured.Unstructured) types.Set {
	for _, o := range objects {
		ref := kube.RefOf(o)
		if o.GetKind() == "Job" && !slices.ContainsFunc(runs, func(r kube.JobRun) bool { return r.Finished && r.Ref.Same(ref) }) {
			return types.SetUnknown(types.StringType)
		}
	}
	return finished(runs)
}
