package roles

import (
	"context"
	"fmt"
	"time"

	"github.com/hashicorp/terraform-plugin-framework/diag"
	"github.com/hashicorp/terraform-plugin-framework/resource"
	"github.com/hashicorp/terraform-plugin-framework/types"

	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/etcd"
	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/pki"
	"github.com/k8s-from-scratch/terraform-provider-k8s/internal/provider/argument"
	"github.com/k8s-from-scratch/terraform-provider-k8s/internal/provider/reference"
	"github.com/k8s-from-scratch/terraform-provider-k8s/internal/provider/tf"
)

// Plans that end data say so: what ends, and how much of it there was at the last refresh.

// contentsKey is the private-state entry with what an etcd cluster held at the last refresh.
const contentsKey = "contents"

// knownContents is what an etcd cluster held, and when. It is zero if that is not known.
type knownContents struct {
	Contents etcd.Contents `json:"contents"`
	Seen     time.Time     `json:"seen"`
	// Silent is set if the cluster did not answer the last refresh, which was later.
	Silent bool `json:"silent,omitempty"`
}

// knowledge is what a plan knows without network I/O.
type knowledge struct {
	contents knownContents
	gone     func(instance string) bool // says that the refresh of this run has found the instance gone
	fresh    func(cluster string) bool  // says that this plan makes a new etcd for a cluster, without data
	note     func(cluster string, anew bool)
}

// keepContents keeps what a refresh has seen of the contents; nil if the cluster did not answer.
func (r *roleResource[M, S]) keepContents(ctx context.Context, from tf.PrivateState, to tf.PrivateStateWriter, seen *etcd.Contents, diags *diag.Diagnostics) {
	if seen != nil {
		tf.WritePrivate(ctx, to, contentsKey, knownContents{Contents: *seen, Seen: r.Session.Now().UTC()}, diags)
		return
	}
	if r.kind.lost == nil {
		return
	}
	if known := tf.ReadPrivate[knownContents](ctx, from, contentsKey, diags); !known.Seen.IsZero() && !known.Silent {
		known.Silent = true
		tf.WritePrivate(ctx, to, contentsKey, known, diags)
	}
}

// planEnd says in the plan what ends with a role's data, and refuses to plan the end of a role that
// is protected.
func (r *roleResource[M, S]) planEnd(ctx context.Context, req resource.ModifyPlanRequest, resp *resource.ModifyPlanResponse) {
	if _, protectable := r.kind.attributes[argument.Protection]; !protectable {
		return
	}
	what := argument.ObjectName(ctx, r.kind.title, "id", req.State, resp.Plan)
	end := argument.PlannedEnd(ctx, what, req, resp)
	if end == argument.Stays || r.kind.lost == nil || req.Private == nil {
		return
	}
	resp.Diagnostics.AddWarning(fmt.Sprintf("This plan ends the data of %s", what),
		r.kind.lost(tf.ReadPrivate[knownContents](ctx, req.Private, contentsKey, &resp.Diagnostics)))
}

// lostEtcdData says what ends with an etcd cluster.
func lostEtcdData(seen knownContents) string {
	held := "How much it holds is not known: no refresh has had an answer from it."
	if !seen.Seen.IsZero() {
		held = fmt.Sprintf("At the last refresh, %s, it held %s in %s.", seen.Seen.Format(time.RFC3339), argument.Counted(seen.Contents.Keys, "object"), etcd.SizeWords(seen.Contents.Bytes))
	}
	return held + " The data directories of all its members are deleted, and with them every object of the cluster that lives in it.\n\n" +
		"To keep a copy, take a snapshot into S3 first: with k8s_etcd_backup, an apply with another trigger takes one, and restore_from makes a cluster of it. To have such plans refused, set deletion_protection = true."
}

// checkKeysStay refuses a plan that replaces the keys of an existing role: no part of the cluster
// would trust certificates of the new authorities, and the API servers could not read the secrets
// in etcd. A rotation changes the generations; new keys in place of the same generations mean that
// k8s_pki is replaced.
func checkKeysStay(ctx context.Context, title string, req resource.ModifyPlanRequest, diags *diag.Diagnostics) {
	was, planned, at := reference.PlannedPKI(ctx, req, diags)
	if diags.HasError() {
		return
	}
	before, known := reference.OfPKI.Read(ctx, was, diags)
	after, alsoKnown := reference.OfPKI.Read(ctx, planned, diags)
	if !known || !alsoKnown {
		return
	}
	for kind, bundle := range map[pki.Kind][2]types.String{
		pki.KindKubernetesCA:   {before.KubernetesCA, after.KubernetesCA},
		pki.KindEtcdCA:         {before.EtcdCA, after.EtcdCA},
		pki.KindFrontProxyCA:   {before.FrontProxyCA, after.FrontProxyCA},
		pki.KindServiceAccount: {before.ServiceAccountPublicKey, after.ServiceAccountPublicKey},
	} {
		if bundle[0].ValueString() == "" || !bundle[1].IsUnknown() || !reference.GenerationOf(reference.GenerationsIn(was), kind).Equal(reference.GenerationOf(reference.GenerationsIn(planned), kind)) {
			continue
		}
		diags.AddAttributeError(at, "The keys of a living cluster would be replaced",
			fmt.Sprintf("This plan replaces k8s_pki of cluster %s, which this %s uses: -replace, a taint, or a changed argument of k8s_pki does so. All keys would be deleted before anything "+
				"of the cluster has others, and the secrets in its etcd could not be read any more.\n\n"+
				"To get other keys, rotate them in place with generations of k8s_pki: the guide \"Rotate keys\" describes the steps. After a taint, run terraform untaint. "+
				"To start over with an empty cluster, destroy the cluster's other resources first.\n\n"+
				"If the keys exist, and k8s_pki was only removed from the state, bring it back before the rest: import it, or apply it alone, with adopt = true and -target.", before.Cluster.ValueString(), title))
		return
	}
}
