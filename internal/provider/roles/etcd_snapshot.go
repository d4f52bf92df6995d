package roles

import (
	"context"
	"fmt"

	"github.com/hashicorp/terraform-plugin-framework/action"
	"github.com/hashicorp/terraform-plugin-framework/action/schema"
	"github.com/hashicorp/terraform-plugin-framework/types"

	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/parallel"
	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/rollout/etcdbackup"
	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/snapshot"
	"github.com/k8s-from-scratch/terraform-provider-k8s/internal/provider/reference"
	"github.com/k8s-from-scratch/terraform-provider-k8s/internal/provider/session"
	"github.com/k8s-from-scratch/terraform-provider-k8s/internal/provider/tf"
)

// etcdSnapshotAction takes a snapshot when Terraform (1.14 or later) is asked to.
type etcdSnapshotAction struct{ session.Base }

var _ action.ActionWithConfigure = (*etcdSnapshotAction)(nil)

func NewEtcdSnapshot() action.Action { return &etcdSnapshotAction{} }

type etcdSnapshotModel struct {
	Hosts types.List `tfsdk:"hosts"`
}

// Metadata implements action.Action.
func (a *etcdSnapshotAction) Metadata(_ context.Context, req action.MetadataRequest, resp *action.MetadataResponse) {
	resp.TypeName = req.ProviderTypeName + "_etcd_snapshot"
}

// Configure implements action.ActionWithConfigure.
func (a *etcdSnapshotAction) Configure(_ context.Context, req action.ConfigureRequest, _ *action.ConfigureResponse) {
	a.Receive(req.ProviderData)
}

// Schema implements action.Action.
func (a *etcdSnapshotAction) Schema(_ context.Context, _ action.SchemaRequest, resp *action.SchemaResponse) {
	resp.Schema = schema.Schema{
		MarkdownDescription: "Takes a snapshot of etcd now, with what `k8s_etcd_backup` has put on the members. It fails unless the snapshot was verified and is in the bucket. Needs Terraform 1.14 or later.",
		Attributes: map[string]schema.Attribute{
			"hosts": schema.ListAttribute{Required: true, ElementType: reference.OfHost.Type(),
				MarkdownDescription: "Machines of the members: `k8s_etcd_backup.<name>.hosts`. The first one that can takes the snapshot."},
		},
	}
}

// Invoke implements action.Action.
func (a *etcdSnapshotAction) Invoke(ctx context.Context, req action.InvokeRequest, resp *action.InvokeResponse) {
	var m etcdSnapshotModel
	resp.Diagnostics.Append(req.Config.Get(ctx, &m)...)
	targets := reference.TargetsFrom(ctx, a.Session, m.Hosts, &resp.Diagnostics)
	if resp.Diagnostics.HasError() {
		return
	}
	if len(targets) == 0 {
		resp.Diagnostics.AddAttributeError(tf.Path("hosts"), "Missing hosts", "A snapshot is taken on a machine of an etcd member: name at least one.")
		return
	}
	var taken snapshot.Description
	// The framework calls this in a goroutine of its own, where a panic would end the provider.
	err := parallel.Safely(ctx, "snapshot", func() (err error) {
		taken, err = etcdbackup.TakeSnapshot(ctx, a.Session.Fleet(ctx).Machines(targets))
		return err
	})
	if err != nil {
		session.AddError(&resp.Diagnostics, "Cannot take a snapshot of etcd", err)
		return
	}
	resp.SendProgress(action.InvokeProgressEvent{
		Message: fmt.Sprintf("Snapshot %s of etcd: revision %d, %d keys, %d bytes, taken on %s.", taken.Name, taken.Revision, taken.Keys, taken.Size, taken.Member)})
}
