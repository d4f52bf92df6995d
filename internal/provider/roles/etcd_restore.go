package roles

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/hashicorp/terraform-plugin-framework-validators/stringvalidator"
	"github.com/hashicorp/terraform-plugin-framework/diag"
	"github.com/hashicorp/terraform-plugin-framework/path"
	"github.com/hashicorp/terraform-plugin-framework/resource/schema"
	"github.com/hashicorp/terraform-plugin-framework/schema/validator"
	"github.com/hashicorp/terraform-plugin-framework/types"

	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/etcd"
	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/invalid"
	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/maintenance"
	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/rollout/etcdcluster"
	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/snapshot"
	"github.com/k8s-from-scratch/terraform-provider-k8s/internal/provider/argument"
	"github.com/k8s-from-scratch/terraform-provider-k8s/internal/provider/reference"
	"github.com/k8s-from-scratch/terraform-provider-k8s/internal/provider/tf"
)

// etcdRestoreModel is `restore_from` of an etcd cluster.
type etcdRestoreModel struct {
	Bucket      types.String `tfsdk:"bucket"`
	Prefix      types.String `tfsdk:"prefix"`
	Snapshot    types.String `tfsdk:"snapshot"`
	Region      types.String `tfsdk:"region"`
	Endpoint    types.String `tfsdk:"endpoint"`
	Cluster     types.String `tfsdk:"cluster"`
	Member      types.String `tfsdk:"member"`
	ReplaceData types.Bool   `tfsdk:"replace_data"`
	Nodes       types.List   `tfsdk:"nodes"`
	Trigger     types.String `tfsdk:"trigger"`
}

func etcdRestoreAttribute() schema.SingleNestedAttribute {
	with := func(names ...string) []validator.String {
		var out []validator.String
		for _, name := range names {
			out = append(out, stringvalidator.AlsoRequires(path.MatchRelative().AtParent().AtName(name)))
		}
		return out
	}
	inBucket := func(description string, more ...validator.String) schema.StringAttribute {
		return schema.StringAttribute{Optional: true, MarkdownDescription: description, Validators: slices.Concat(with("bucket"), more)}
	}
	return schema.SingleNestedAttribute{
		Optional: true,
		MarkdownDescription: "Source of the cluster's data: a snapshot in S3 (`bucket`), or the data of one member (`member`). A restore is done once; another snapshot, bucket, member or `trigger` is " +
			"another restore, in place. The guide [Restoring](../guides/restoring.md) describes the steps. Default: none.",
		Attributes: map[string]schema.Attribute{
			"bucket": schema.StringAttribute{
				Optional: true, MarkdownDescription: "Bucket of the snapshots, as of `k8s_etcd_backup`. The members read it with the credentials of their instance profile.",
				Validators: []validator.String{argument.BucketName(), stringvalidator.ExactlyOneOf(path.MatchRelative().AtParent().AtName("member"))},
			},
			"prefix": inBucket("Prefix of the objects' keys. Default: `k8s/<cluster>/etcd/`.", argument.ObjectPrefix()),
			"snapshot": inBucket("Name of the snapshot, such as `20260102T030405Z-1234`: the key of its objects without prefix and suffix. Default: the newest one.",
				tf.Check("the name of a snapshot", func(s string) error {
					_, err := snapshot.Time(s)
					return err
				})),
			"region":   inBucket("AWS region of the bucket. Default: the region of the key store."),
			"endpoint": inBucket("URL at which the members reach S3, to which `/<bucket>/<key>` is appended. Default: `https://s3.<region>.amazonaws.com`, in China `.amazonaws.com.cn`.", tf.HTTPURL()),
			"cluster":  inBucket("Name of the cluster whose snapshot it is. The snapshot of a cluster with another name is refused. Default: this cluster's name.", argument.ClusterName()),
			"member": schema.StringAttribute{
				Optional: true,
				MarkdownDescription: "Name of the machine whose data are used, for a cluster that cannot regain its quorum. This machine forms the new cluster, and the others join it. Its present data stay " +
					"on it, in `/var/lib/etcd/replaced-<time>`. The last writes are lost if it had not yet learned of their commit.",
				Validators: []validator.String{argument.MachineName()},
			},
			"replace_data": schema.BoolAttribute{
				Optional: true, MarkdownDescription: "Whether the restore may replace data that members have. The replaced data are kept in `/var/lib/etcd/replaced-<time>` of each machine. It has no effect after this " +
					"restore. Default: `false`; such a restore is refused.",
			},
			"nodes": schema.ListAttribute{
				Optional: true, ElementType: types.StringType,
				MarkdownDescription: "Names of the nodes that still exist. All other Node objects are deleted from the restored data, and their pods end with them. Default: on a new etcd cluster none, since " +
					"new workers register themselves; in place all of them.",
			},
			"trigger": schema.StringAttribute{Optional: true, MarkdownDescription: "Any text. A change restores again: the snapshot named in `snapshot`, or the newest one."},
		},
	}
}

// etcdRestore turns restore_from into what the library knows. Unknown values are empty.
func etcdRestore(ctx context.Context, from types.Object, region string, diags *diag.Diagnostics) etcdcluster.Restore {
	m, ok := tf.Object[etcdRestoreModel](ctx, from, diags)
	if !ok {
		return etcdcluster.Restore{}
	}
	r := etcdcluster.Restore{
		Bucket: m.Bucket.ValueString(), Prefix: m.Prefix.ValueString(), Snapshot: m.Snapshot.ValueString(), Region: cmp.Or(m.Region.ValueString(), region),
		Endpoint: m.Endpoint.ValueString(), Cluster: m.Cluster.ValueString(), Member: m.Member.ValueString(),
		ReplaceData: m.ReplaceData.ValueBool(), Trigger: m.Trigger.ValueString(),
	}
	if !m.Nodes.IsNull() && !m.Nodes.IsUnknown() {
		r.Nodes = append([]string{}, tf.Strings(m.Nodes.Elements())...)
	}
	return r
}

// restores reports whether a plan restores the cluster.
func restores(ctx context.Context, plan, prior *etcdModel, diags *diag.Diagnostics) (etcdcluster.Restore, bool) {
	now := etcdRestore(ctx, plan.RestoreFrom, "", diags)
	if prior == nil {
		return now, now.Wanted()
	}
	return now, now.Another(etcdRestore(ctx, prior.RestoreFrom, "", diags), reference.ClusterOf(ctx, prior.PKI, diags).ValueString())
}

// checkEtcdRestore checks restore_from as far as it is known.
func checkEtcdRestore(ctx context.Context, plan *etcdModel, hosts []reference.Host, diags *diag.Diagnostics) (errs invalid.Fields) {
	r := etcdRestore(ctx, plan.RestoreFrom, "", diags)
	if r.Member != "" && hosts != nil && !slices.ContainsFunc(hosts, func(h reference.Host) bool { return h.Name.IsUnknown() || h.Name.ValueString() == r.Member }) {
		errs.Say("restore_from", "Unknown member", "restore_from.member: %s is none of hosts.", r.Member)
	}
	if keys, known := reference.OfPKI.Read(ctx, plan.PKI, diags); r.Bucket != "" && known && keys.Region.IsNull() {
		if m, _ := tf.Object[etcdRestoreModel](ctx, plan.RestoreFrom, diags); m.Region.IsNull() {
			errs.Say("restore_from", "Missing region", "The key store of the cluster is not in AWS, so there is no default: set restore_from.region to the region of the bucket.")
		}
	}
	return errs
}

// guardEtcdRestore says what a plan restores in place, and refuses that for a cluster that has
// answered the refresh.
func guardEtcdRestore(r etcdcluster.Restore, cluster string, seen knownContents, diags *diag.Diagnostics) {
	at := path.Root("restore_from")
	if answered := !seen.Seen.IsZero() && !seen.Silent; answered && !r.ReplaceData {
		diags.AddAttributeError(at, "The etcd cluster has its data",
			fmt.Sprintf("At the refresh, %s, the cluster answered, with %s. A restore from %s would replace them.\n\n"+
				"To go back to the snapshot nevertheless, set restore_from.replace_data = true. Otherwise remove restore_from, or write it as it was.",
				seen.Seen.Format(time.RFC3339), argument.Counted(seen.Contents.Keys, "object"), r.Source(cluster)))
		return
	}
	warnOfRestore(r, cluster, diags)
}

// warnOfRestore says what a plan restores.
func warnOfRestore(r etcdcluster.Restore, cluster string, diags *diag.Diagnostics) {
	if r.Wanted() {
		diags.AddAttributeWarning(path.Root("restore_from"), strings.TrimSpace("This plan restores etcd cluster "+cluster),
			fmt.Sprintf("All members get data made from %s. What was written later is lost. %s.", r.Source(cluster), otherData(r)))
	}
}

// otherData says what happens to data that are not the source of the restore.
func otherData(r etcdcluster.Restore) string {
	switch {
	case r.ReplaceData:
		return "Data that members still have are put aside"
	case r.Member != "":
		return "The apply refuses the restore if other members have data"
	}
	return "The apply refuses the restore if members still have data"
}

// checkRestoredMachines refuses a plan that restores, and that also deletes data unasked: those of a
// machine that it replaces, or of a member that leaves. Terraform deletes machines first. A member
// that leaves and is off keeps its data: the plan says what they can still do.
func checkRestoredMachines(r etcdcluster.Restore, before, now []reference.Host, gone func(instance string) bool, diags *diag.Diagnostics) {
	var lost, leave []string
	for _, m := range maintenance.LostMembers(membersOf(before), membersOf(now), gone) {
		switch {
		case m.Ended:
		case !r.ReplaceData || m.Name == r.Member:
			lost = append(lost, m.Name)
		case m.Dropped:
			leave = append(leave, m.Name)
		}
	}
	if len(lost) > 0 {
		diags.AddAttributeError(path.Root("restore_from"), "This plan deletes data and restores",
			fmt.Sprintf("The machines of %s are replaced, or are not in hosts any more. Their data would be deleted before anything is restored.\n\n"+
				"Restore first, and change the machines in another apply. If nobody needs their data, set restore_from.replace_data = true.", strings.Join(lost, ", ")))
		return
	}
	if len(leave) > 0 {
		diags.AddAttributeWarning(path.Root("restore_from"), "Members leave while the cluster is restored",
			fmt.Sprintf("The data of %s are put aside before the restored cluster starts, and then deleted. A machine that cannot be reached keeps them: the restored cluster does not talk to it when it comes back, "+
				"and the next apply removes etcd from it.%s", strings.Join(leave, ", "), together(len(leave), len(before))))
	}
}

// together says what leaving members can do if they are a quorum.
func together(leave, members int) string {
	quorum := etcd.Quorum(members)
	if leave < quorum {
		return ""
	}
	return fmt.Sprintf(" If %d or more of them come back together before that, they serve the old data to whoever still asks them.\n\n"+
		"Those that are off: start them before this apply, or terminate them.", quorum)
}
